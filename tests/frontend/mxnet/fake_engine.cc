// The C functions of the engine that the plug-in calls.
#include "frontend/mxnet/fake_engine.h"

#include <atomic>
#include <cstring>
#include <memory>
#include <utility>

struct bs_waiter {
  std::atomic<size_t> left;
};

struct bs_memory_use {
  std::shared_ptr<void> use;
};

void bs_worker::Push(size_t index, int code, const char* message) const {
  const bs_operation request = requests[index];
  const bs_done pushed = request.kind == BS_PUSH ? request.done : request.pushed;
  pushed(request.context, code, message);
}

void bs_worker::Pull(size_t index, int code, const char* message) const {
  const bs_operation request = requests[index];
  if (code == 0 && request.in != nullptr) {
    std::memcpy(request.out, request.in, request.size_bytes);
  }
  request.done(request.context, code, message);
}

int bs_worker_start_operation(bs_worker* worker, const bs_operation* operation, bs_error* error) {
  if (!worker->refusal.empty()) {
    error->code = 3;
    error->message[worker->refusal.copy(error->message, sizeof(error->message) - 1)] = '\0';
    return error->code;
  }
  worker->requests.push_back(*operation);
  if (operation->kind != BS_PUSH_PULL) {
    worker->rates.push_back(operation->rates == nullptr ? std::nullopt
                                                        : std::optional(*operation->rates));
  }
  return 0;
}

int bs_worker_visit(bs_worker* worker, void (*visit)(void* context), void* context,
                    bs_error* /*error*/) {
  if (!worker->takes_visits) return 3;
  if (worker->holds_visits) {
    worker->visits.emplace_back([=] { visit(context); });
  } else {
    visit(context);
  }
  return 0;
}

int bs_worker_fail(bs_worker* worker, const char* why) {
  worker->failures.emplace_back(why);
  return 0;
}

uint64_t bs_worker_least_kept_bytes(const bs_worker* worker) { return worker->least_kept_bytes; }

int bs_worker_use_memory(bs_worker* worker, const bs_kept_memory* memory, bs_memory_use** use,
                         bs_error* /*error*/) {
  std::shared_ptr<void> found = worker->use_memory(*memory);
  *use = found ? new bs_memory_use{std::move(found)} : nullptr;
  return 0;
}

void bs_memory_use_end(bs_memory_use* use) { delete use; }

bs_waiter* bs_waiter_new(size_t count) { return new bs_waiter{count}; }
void bs_waiter_done(void* waiter, int /*code*/, const char* /*message*/) {
  --static_cast<bs_waiter*>(waiter)->left;
}
int bs_waiter_wait(const bs_waiter* waiter, int /*timeout_ms*/, bs_error* /*error*/) {
  return waiter->left == 0 ? 1 : 0;
}
void bs_waiter_free(bs_waiter* waiter) { delete waiter; }
