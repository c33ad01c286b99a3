// UniqueFunction: a callable that is moved, never copied, so that it can own its captures.
//
// REQUIRES: not empty when called.  Not thread-safe.
#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "base/check.h"

namespace bs {

template <typename Signature>
class UniqueFunction;

template <typename R, typename... Args>
class UniqueFunction<R(Args...)> {
 public:
  UniqueFunction() = default;
  // Implicit on purpose, as for std::function.
  template <typename F, std::enable_if_t<!std::is_same_v<std::decay_t<F>, UniqueFunction> &&
                                             std::is_invocable_r_v<R, std::decay_t<F>&, Args...>,
                                         int> = 0>
  UniqueFunction(F&& f)  // NOLINT(google-explicit-constructor)
      : impl_(std::make_unique<Impl<std::decay_t<F>>>(std::forward<F>(f))) {}

  UniqueFunction(UniqueFunction&&) noexcept = default;
  UniqueFunction& operator=(UniqueFunction&&) noexcept = default;
  UniqueFunction(const UniqueFunction&) = delete;
  UniqueFunction& operator=(const UniqueFunction&) = delete;
  ~UniqueFunction() = default;

  explicit operator bool() const { return impl_ != nullptr; }
  R operator()(Args... args) const {
    BS_CHECK(impl_ != nullptr);
    return impl_->Call(std::forward<Args>(args)...);
  }

 private:
  struct Base {
    virtual ~Base() = default;
    virtual R Call(Args... args) = 0;
  };
  template <typename F>
  struct Impl final : Base {
    explicit Impl(F&& f) : f_(std::move(f)) {}
    explicit Impl(const F& f) : f_(f) {}
    R Call(Args... args) override { return f_(std::forward<Args>(args)...); }
    F f_;
  };
  std::unique_ptr<Base> impl_;
};

}  // namespace bs
