// The engine without a framework: a worker that times push-pulls, and the nodes it needs.
//
//   wire_benchmark node                        scheduler node or server, as DMLC_ROLE says
//   wire_benchmark throughput BYTES:ROUNDS...  a worker; one blocking push-pull after another
//   wire_benchmark small BYTES KEYS ROUNDS     a worker; blocking push-pulls of one key, and bursts
//   wire_benchmark replay STEPS LAYER...       a worker; steps of a training, see replay.py; each
//                                              LAYER is BYTES:FORWARD_US:BACKWARD_US:PLACE, the
//                                              last in the order in which the caller numbers them
//   wire_benchmark urgent TENSORS BYTES COUNT URGENT_BYTES [CODEC[,OPTION=VALUE...]]
//                                              a worker; push-pulls of URGENT_BYTES, COUNT times
//                                              with nothing else on the link and COUNT times while
//                                              so many tensors of BYTES fill it, in that coding if
//                                              any, see urgent.py
//
// In the first modes a worker prints "BEGIN NAME", waits for a line, measures, prints "ASIDE" with
// the seconds of its processor that do not count, "END NAME seconds...", and waits for a line
// again, so that whoever reads it can look at every process in between.
//
// Gradients change from round to round, and a sum that is not theirs ends the program.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "bytescheduler/c_api.h"
#include "wire_worker.h"

namespace {

using bench::CheckOk;
using bench::CheckSum;
using bench::Clock;
using bench::Cost;
using bench::kPatienceMs;
using bench::kWarmUps;
using bench::Tensor;
using bench::WaiterPtr;
using bench::Worker;

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
    if (layer.sum) {
      Worker::Await(layer.sum.get());
      CheckSum(layer.tensor.Wrong());
    }
    std::this_thread::sleep_for(layer.forward);
  }
  for (auto layer = layers->rbegin(); layer != layers->rend(); ++layer) {
    std::this_thread::sleep_for(layer->backward);
    layer->tensor.Change();
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
  for (const Layer& layer : layers) {
    if (!layer.sum) continue;
    Worker::Await(layer.sum.get());
    CheckSum(layer.tensor.WrongAnywhere());
  }
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
        Tensor& tensor = tensors->at(i);
        if (rounds[i]) {
          Worker::Await(rounds[i].get());
          CheckSum(tensor.coding.codec == 0 ? tensor.Wrong() : tensor.Missing());
          moved_bytes_ += tensor.size_bytes();
        }
        tensor.Change();
        rounds[i].reset(bs_waiter_new(2));
        worker->PushPull(&tensor, 1, 0, rounds[i].get());
      }
    }
    for (size_t i = 0; i < rounds.size(); ++i) {
      Worker::Await(rounds[i].get());
      if (tensors->at(i).coding.codec == 0) CheckSum(tensors->at(i).WrongAnywhere());
    }
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
    urgent->ChangeAll();
    const WaiterPtr waiter(bs_waiter_new(2));
    const auto begin = Clock::now();
    worker->PushPull(urgent, waiter.get());
    Worker::Await(waiter.get());
    const std::chrono::duration<double> took = Clock::now() - begin;
    seconds.push_back(took.count());
    CheckSum(urgent->WrongAnywhere());
  }
  return seconds;
}

// That of "onebit,scaling=True"; zeros for no text.
bs_coding CodingOf(const std::string& text) {
  bs_coding coding{};
  if (text.empty()) return coding;
  std::vector<std::string> words;
  std::istringstream rest(text);
  for (std::string word; std::getline(rest, word, ',');) words.push_back(word);
  std::vector<bs_setting> options;
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    if (equals == std::string::npos) {
      std::fprintf(stderr, "wire_benchmark: %s: want OPTION=VALUE\n", words[i].c_str());
      std::exit(2);
    }
    words[i][equals] = '\0';  // the name ends here
    options.push_back({words[i].c_str(), words[i].c_str() + equals + 1});
  }
  bs_error error{};
  const int code =
      bs_coding_parse(words[0].c_str(), options.data(), options.size(), &coding, &error);
  CheckOk(code, error);
  return coding;
}

int RunUrgent(uint64_t tensors, size_t bytes, int count, size_t urgent_bytes,
              const bs_coding& coding) {
  constexpr auto kWarmUp = std::chrono::milliseconds(500);
  Worker worker;
  Tensor urgent = worker.Declare(0, urgent_bytes);
  std::vector<Tensor> busy;
  for (uint64_t key = 1; key <= tensors; ++key) busy.push_back(worker.Declare(key, bytes, coding));
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
  if ((words.size() == 5 || words.size() == 6) && words[0] == "urgent") {
    return RunUrgent(std::stoul(words[1]), std::stoul(words[2]), std::stoi(words[3]),
                     std::stoul(words[4]), CodingOf(words.size() == 6 ? words[5] : ""));
  }
  std::fprintf(stderr, "usage: see the head of benchmarks/engine/wire_benchmark.cc\n");
  return 2;
}
