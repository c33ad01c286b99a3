// The engine without a framework: a worker that times push-pulls, and the nodes it needs.
//
//   wire_benchmark node                        scheduler node or server, as DMLC_ROLE says
//   wire_benchmark throughput BYTES:ROUNDS...  a worker; one blocking push-pull after another
//   wire_benchmark small BYTES KEYS ROUNDS     a worker; blocking push-pulls of one key, and bursts
//   wire_benchmark replay STEPS LAYER...       a worker; steps of a training, see replay.py; each
//                                              LAYER is BYTES:FORWARD_US:BACKWARD_US:PLACE, the
//                                              last in the order in which the caller numbers them
//   wire_benchmark urgent TENSORS BYTES COUNT  a worker; push-pulls of 4 KB, COUNT times with
//                                              nothing else on the link and COUNT times while so
//                                              many tensors of that size fill it, see urgent.py
//
// In the first modes a worker prints "BEGIN NAME", waits for a line, measures, prints "END NAME
// seconds..." and waits for a line again, so that whoever reads it can look at every process in
// between.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "bytescheduler/c_api.h"

namespace {

constexpr int kFloat32 = 0;
constexpr int kPatienceMs = 300'000;
constexpr int kWarmUps = 2;

using Clock = std::chrono::steady_clock;

struct WaiterFree {
  void operator()(bs_waiter* waiter) const { bs_waiter_free(waiter); }
};
using WaiterPtr = std::unique_ptr<bs_waiter, WaiterFree>;

void CheckOk(int code, const bs_error& error) {
  if (code == 0 && error.code == 0) return;
  std::fprintf(stderr, "wire_benchmark: %s\n", error.message);
  std::exit(1);
}

// Writes "WORD NAME" and waits for the reader.
void Meet(const char* word, const std::string& name, const std::vector<double>& seconds) {
  std::printf("%s %s", word, name.c_str());
  for (const double value : seconds) std::printf(" %.9f", value);
  std::printf("\n");
  std::fflush(stdout);
  if (std::getchar() == EOF) std::exit(1);
}

struct Tensor {
  uint64_t key = 0;
  std::vector<float> in;
  std::vector<float> out;
};

// Of this process, since it began.
struct Cost {
  double sent;   // messages
  double fused;  // of these, inside others
  double cpu_us;
};

class Worker {
 public:
  Worker() {
    bs_error error{};
    const int code = bs_worker_open(nullptr, 0, -1, &worker_, &error);
    CheckOk(code, error);
  }
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker() { bs_worker_close(worker_, kPatienceMs, nullptr); }

  Tensor Declare(uint64_t key, size_t bytes) {
    Tensor tensor{.key = key,
                  .in = std::vector<float>(bytes / sizeof(float), 1.0F),
                  .out = std::vector<float>(bytes / sizeof(float), 0.0F)};
    const WaiterPtr waiter(bs_waiter_new(1));
    bs_error error{};
    const int code = bs_worker_broadcast(worker_, key, kFloat32, tensor.out.data(),
                                         tensor.out.size() * sizeof(float), bs_waiter_done,
                                         waiter.get(), &error);
    CheckOk(code, error);
    Await(waiter.get());
    return tensor;
  }

  void PushPull(Tensor* tensor, bs_waiter* waiter) { PushPull(tensor, tensor->key, 0, waiter); }
  void PushPull(Tensor* tensor, uint64_t place, uint64_t called, bs_waiter* waiter) {
    bs_push_pull request{};
    request.key = tensor->key;
    request.priority = -static_cast<int>(place);
    request.called = called;
    request.in = tensor->in.data();
    request.out = tensor->out.data();
    request.size_bytes = tensor->in.size() * sizeof(float);
    request.pushed = bs_waiter_done;
    request.pulled = bs_waiter_done;
    request.context = waiter;
    bs_error error{};
    const int code = bs_worker_push_pull(worker_, &request, &error);
    CheckOk(code, error);
  }

  // All of them at once; seconds until every sum is there.
  double Round(std::vector<Tensor>* tensors) {
    const WaiterPtr waiter(bs_waiter_new(2 * tensors->size()));
    const auto begin = Clock::now();
    for (Tensor& tensor : *tensors) PushPull(&tensor, waiter.get());
    Await(waiter.get());
    const std::chrono::duration<double> took = Clock::now() - begin;
    return took.count();
  }

  // A round of its own, `name`d, that others may watch.
  void Measure(const std::string& name, std::vector<Tensor>* tensors, int rounds) {
    for (int i = 0; i < kWarmUps; ++i) Round(tensors);
    Meet("BEGIN", name, {});
    std::vector<double> seconds;
    for (int i = 0; i < rounds; ++i) seconds.push_back(Round(tensors));
    Meet("END", name, seconds);
    const float workers = static_cast<float>(bs_worker_num_workers(worker_));
    for (const Tensor& tensor : *tensors) {
      BS_CHECK(tensor.out.front() == workers && tensor.out.back() == workers);
    }
  }

  Cost CostSoFar() const {
    Cost cost{};
    bs_error error{};
    const auto row = [](void* context, const char* name, int /*of*/, double value) {
      auto* const told = static_cast<Cost*>(context);
      if (std::strcmp(name, "sent_messages_total") == 0) told->sent = value;
      if (std::strcmp(name, "sent_fused_total") == 0) told->fused = value;
    };
    const int code = bs_worker_measure(worker_, kPatienceMs, row, &cost, &error);
    CheckOk(code, error);
    rusage used{};
    BS_CHECK(::getrusage(RUSAGE_SELF, &used) == 0);
    for (const timeval& time : {used.ru_utime, used.ru_stime}) {
      cost.cpu_us += static_cast<double>(time.tv_sec) * 1e6 + static_cast<double>(time.tv_usec);
    }
    return cost;
  }

  static void Await(const bs_waiter* waiter) {
    bs_error error{};
    BS_CHECK(bs_waiter_wait(waiter, kPatienceMs, &error) == 1);
    CheckOk(0, error);
  }

 private:
  bs_worker* worker_ = nullptr;
};

int RunNode() {
  bs_node* node = nullptr;
  bs_error error{};
  const int code = bs_node_start(nullptr, 0, &node, &error);
  CheckOk(code, error);
  while (bs_node_wait(node, kPatienceMs, &error) == 0) {
  }
  CheckOk(0, error);
  return bs_node_close(node, "the benchmark is over");
}

int RunThroughput(const std::vector<std::string>& plans) {
  Worker worker;
  uint64_t key = 0;
  for (const std::string& plan : plans) {
    const size_t colon = plan.find(':');
    const std::string bytes = plan.substr(0, colon);
    std::vector<Tensor> tensors;
    tensors.push_back(worker.Declare(key++, std::stoul(bytes)));
    worker.Measure(bytes, &tensors, std::stoi(plan.substr(colon + 1)));
  }
  return 0;
}

struct Layer {
  Tensor tensor;
  std::chrono::microseconds forward;
  std::chrono::microseconds backward;
  uint64_t place;
  WaiterPtr sum{};  // of the latest round
};

std::vector<Layer> DeclareLayers(Worker* worker, const std::vector<std::string>& words) {
  std::vector<Layer> layers;
  for (const std::string& word : words) {
    const size_t first = word.find(':');
    const size_t second = word.find(':', first + 1);
    const size_t third = word.find(':', second + 1);
    layers.push_back(
        {.tensor = worker->Declare(layers.size(), std::stoul(word.substr(0, first))),
         .forward = std::chrono::microseconds(std::stol(word.substr(first + 1, second))),
         .backward = std::chrono::microseconds(std::stol(word.substr(second + 1, third))),
         .place = std::stoul(word.substr(third + 1))});
  }
  return layers;
}

// A layer's forward waits for its sum; its gradient is there after its backward.  As if all had
// been called for before, each in its place.
double Step(Worker* worker, std::vector<Layer>* layers, uint64_t step) {
  const auto begin = Clock::now();
  for (Layer& layer : *layers) {
    if (layer.sum) Worker::Await(layer.sum.get());
    std::this_thread::sleep_for(layer.forward);
  }
  for (auto layer = layers->rbegin(); layer != layers->rend(); ++layer) {
    std::this_thread::sleep_for(layer->backward);
    layer->sum.reset(bs_waiter_new(2));
    const uint64_t called = 1 + step * layers->size() + layer->place;
    worker->PushPull(&layer->tensor, layer->place, called, layer->sum.get());
  }
  const std::chrono::duration<double> took = Clock::now() - begin;
  return took.count();
}

void PrintList(const char* name, const std::vector<double>& values) {
  std::printf("\"%s\": [", name);
  for (size_t i = 0; i < values.size(); ++i) std::printf(i == 0 ? "%.6f" : ", %.6f", values[i]);
  std::printf("], ");
}

int RunReplay(int steps, const std::vector<std::string>& words) {
  Worker worker;
  std::vector<Layer> layers = DeclareLayers(&worker, words);
  std::vector<double> seconds;
  Cost before{};
  for (int i = 0; i < steps; ++i) {
    if (i == kWarmUps) before = worker.CostSoFar();
    const double took = Step(&worker, &layers, static_cast<uint64_t>(i));
    if (i >= kWarmUps) seconds.push_back(took);
  }
  for (const Layer& layer : layers) Worker::Await(layer.sum.get());
  const Cost after = worker.CostSoFar();
  const auto counted = static_cast<double>(seconds.size());
  std::printf("RESULT {");
  PrintList("seconds", seconds);
  std::printf("\"sent\": %.2f, \"fused\": %.2f, \"cpu_us\": %.0f}\n",
              (after.sent - before.sent) / counted, (after.fused - before.fused) / counted,
              (after.cpu_us - before.cpu_us) / counted);
  return 0;
}

// Keeps a link busy, from a thread of its own: each tensor is pushed and pulled again as soon as
// its sum is there, so that all but one of them always wait.
class Bulk {
 public:
  Bulk(Worker* worker, std::vector<Tensor>* tensors)
      : thread_([this, worker, tensors] { Run(worker, tensors); }) {}
  Bulk(const Bulk&) = delete;
  Bulk& operator=(const Bulk&) = delete;
  ~Bulk() {
    stopping_ = true;
    thread_.join();
  }
  // That were pushed and came back as sums so far.
  uint64_t moved_bytes() const { return moved_bytes_; }

 private:
  void Run(Worker* worker, std::vector<Tensor>* tensors) {
    std::vector<WaiterPtr> rounds(tensors->size());
    while (!stopping_) {
      for (size_t i = 0; i < rounds.size(); ++i) {
        if (rounds[i]) {
          Worker::Await(rounds[i].get());
          moved_bytes_ += tensors->at(i).in.size() * sizeof(float);
        }
        rounds[i].reset(bs_waiter_new(2));
        worker->PushPull(&tensors->at(i), 1, 0, rounds[i].get());
      }
    }
    for (const WaiterPtr& round : rounds) Worker::Await(round.get());
  }

  std::atomic<bool> stopping_ = false;
  std::atomic<uint64_t> moved_bytes_ = 0;
  std::thread thread_;  // last: it uses the above
};

// Seconds from each call until the sum is there.
std::vector<double> TimeUrgent(Worker* worker, Tensor* urgent, int count) {
  constexpr auto kPause = std::chrono::milliseconds(5);
  std::vector<double> seconds;
  for (int i = 0; i < count; ++i) {
    std::this_thread::sleep_for(kPause);
    const WaiterPtr waiter(bs_waiter_new(2));
    const auto begin = Clock::now();
    worker->PushPull(urgent, waiter.get());
    Worker::Await(waiter.get());
    const std::chrono::duration<double> took = Clock::now() - begin;
    seconds.push_back(took.count());
  }
  return seconds;
}

int RunUrgent(uint64_t tensors, size_t bytes, int count) {
  constexpr size_t kUrgentBytes = 4096;
  constexpr auto kWarmUp = std::chrono::milliseconds(500);
  Worker worker;
  Tensor urgent = worker.Declare(0, kUrgentBytes);
  std::vector<Tensor> busy;
  for (uint64_t key = 1; key <= tensors; ++key) busy.push_back(worker.Declare(key, bytes));
  const std::vector<double> idle = TimeUrgent(&worker, &urgent, count);
  Bulk bulk(&worker, &busy);
  std::this_thread::sleep_for(kWarmUp);
  const uint64_t before_bytes = bulk.moved_bytes();
  const auto begin = Clock::now();
  const std::vector<double> behind = TimeUrgent(&worker, &urgent, count);
  const std::chrono::duration<double> took = Clock::now() - begin;
  const auto moved = static_cast<double>(bulk.moved_bytes() - before_bytes);
  std::printf("RESULT {");
  PrintList("idle_s", idle);
  PrintList("behind_s", behind);
  std::printf("\"bulk_bytes_per_s\": %.0f}\n", moved / took.count());
  return 0;
}

int RunSmall(size_t bytes, uint64_t keys, int rounds) {
  constexpr int kBlockingPerRound = 100;
  Worker worker;
  std::vector<Tensor> tensors;
  for (uint64_t key = 0; key < keys; ++key) tensors.push_back(worker.Declare(key, bytes));
  std::vector<Tensor> alone;
  alone.push_back(worker.Declare(keys, bytes));
  worker.Measure("blocking", &alone, kBlockingPerRound * rounds);
  worker.Measure("burst", &tensors, rounds);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "node") return RunNode();
  if (words.size() > 1 && words[0] == "throughput") {
    return RunThroughput({words.begin() + 1, words.end()});
  }
  if (words.size() == 4 && words[0] == "small") {
    return RunSmall(std::stoul(words[1]), std::stoul(words[2]), std::stoi(words[3]));
  }
  if (words.size() > 2 && words[0] == "replay") {
    return RunReplay(std::stoi(words[1]), {words.begin() + 2, words.end()});
  }
  if (words.size() == 4 && words[0] == "urgent") {
    return RunUrgent(std::stoul(words[1]), std::stoul(words[2]), std::stoi(words[3]));
  }
  std::fprintf(stderr, "usage: see the head of benchmarks/wire_benchmark.cc\n");
  return 2;
}
