// Names results of completions as libibverbs does, and names the remedy.
#include "transport/rdma/verbs.h"

namespace ps {

std::string_view NameOf(Completion::Result result) {
  using Result = Completion::Result;
  switch (result) {
    case Result::kOk:
      return "success";
    case Result::kLocalLength:
      return "local length error";
    case Result::kLocalProtection:
      return "local protection error";
    case Result::kFlushed:
      return "Work Request Flushed Error";
    case Result::kRemoteInvalid:
      return "remote invalid request error";
    case Result::kRemoteAccess:
      return "remote access error";
    case Result::kRemoteOperation:
      return "remote operation error";
    case Result::kRetriesExceeded:
      return "transport retry counter exceeded";
    case Result::kReceiverNotReady:
      return "RNR retry counter exceeded";
  }
  return "another error";
}

std::string TextOfFailure(const Completion& completion) {
  std::string text = std::string(NameOf(completion.result)) + " (status " +
                     std::to_string(static_cast<uint32_t>(completion.result)) + ", vendor code " +
                     std::to_string(completion.vendor_code) + ")";
  if (completion.result == Completion::Result::kRetriesExceeded) {
    text.append(": if the peer lives, ").append(kLetRdmaPass);
  }
  return text;
}

}  // namespace ps
