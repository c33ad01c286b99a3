// ZmtpTest: an input that is fed bytes, and what comes out of it.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "transport/tcp/zmtp.h"
#include "wire/wire.h"

namespace ps::test {

// The output of an input.
struct Record {
  std::string identity = "none yet";
  int greetings = 0;
  std::vector<Message> messages;
  std::vector<bs::Status> garbage;
};

class ZmtpTest : public ::testing::Test {
 protected:
  // Gives `bytes` to a fresh input, at most `longest` at a time; what it says of the last of them.
  bs::Status Feed(const std::string& bytes, size_t longest) {
    static_cast<void>(Begin(""));
    std::minstd_rand random(static_cast<unsigned>(longest));
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t wanted = 1 + random() % longest;
      bs::Status status = More(bytes.substr(begin, wanted));
      if (!status.ok()) return status;
      begin += wanted;
    }
    return bs::Status::Ok();
  }
  bs::Status Begin(const std::string& bytes) {
    record_ = {};
    input_.emplace(shared_, MakeListener());
    return More(bytes);
  }
  // All of them, in as few reads as there is room for.
  bs::Status More(const std::string& bytes) {
    for (size_t begin = 0; begin < bytes.size();) {
      const size_t taken = Fill(input_->MakeRooms(), std::string_view(bytes).substr(begin));
      begin += taken;
      bs::Status status = input_->Filled(taken);
      for (; input_->waiting() && status.ok(); ++num_turns_) {
        input_->BeginTurn();
        status = input_->Continue();
      }
      if (!status.ok()) return status;
      input_->BeginTurn();
      // Others read between two reads of ours; not always, as it takes longer than all the rest.
      if (num_reads_++ % 64 == 0) std::memset(scratch_.data(), 0xee, scratch_.size());
    }
    return bs::Status::Ok();
  }

  // Gives it `bytes` in as few reads: how many of each were not read to where they stay.
  std::vector<size_t> ReadsOf(std::string_view bytes) {
    std::vector<size_t> to_copy;
    while (!bytes.empty()) {
      const ZmtpInput::Rooms rooms = input_->MakeRooms();
      const size_t taken = Fill(rooms, bytes);
      bytes.remove_prefix(taken);
      const bool into_scratch = std::as_const(scratch_).data() <= rooms[0].iov_base &&
                                rooms[0].iov_base < scratch_.data() + scratch_.size();
      to_copy.push_back(into_scratch ? taken : taken - std::min(taken, rooms[0].iov_len));
      EXPECT_TRUE(input_->Filled(taken).ok());
      while (input_->waiting()) {
        input_->BeginTurn();
        EXPECT_TRUE(input_->Continue().ok());
      }
      input_->BeginTurn();
    }
    return to_copy;
  }

  // How much would be read next.
  size_t RoomBytes() {
    const ZmtpInput::Rooms rooms = input_->MakeRooms();
    return rooms[0].iov_len + rooms[1].iov_len;
  }
  ZmtpInput::Listener MakeListener() {
    return {.on_greeting = [this] { ++record_.greetings; },
            .on_ready = [this](std::string_view who) { record_.identity = who; },
            .on_message = [this](bs::Result<Message> m) { Add(std::move(m)); },
            .place = place_,
            .known = [this] { return known_; },
            .most_bytes = most_bytes_};
  }
  bs::Status MoreTo(ZmtpInput* input, const std::string& bytes) {
    const size_t taken = Fill(input->MakeRooms(), bytes);
    EXPECT_EQ(taken, bytes.size());
    return input->Filled(taken);
  }

  Record record_;
  std::function<std::shared_ptr<Landing>(const Meta& meta, uint64_t size_bytes)> place_;
  std::function<uint64_t(const Meta& meta)> most_bytes_;
  bool known_ = true;

 private:
  static size_t Fill(const ZmtpInput::Rooms& rooms, std::string_view bytes) {
    size_t taken = 0;
    for (const iovec& room : rooms) {
      const size_t size = std::min(room.iov_len, bytes.size() - taken);
      if (size > 0) std::memcpy(room.iov_base, bytes.data() + taken, size);
      taken += size;
    }
    return taken;
  }
  void Add(bs::Result<Message> message) {
    if (message.ok()) return record_.messages.push_back(std::move(message.value()));
    record_.garbage.push_back(message.status());
  }

  size_t num_reads_ = 0;
  size_t num_turns_ = 0;
  std::vector<std::byte> scratch_ = std::vector<std::byte>(ZmtpInput::kScratchBytes);

 protected:
  const ZmtpInput::Shared shared_{scratch_, std::make_shared<BlockPool>()};
  std::optional<ZmtpInput> input_;
};

inline std::string FrameOf(const std::string& body, bool more) {
  std::string frame;
  AppendFrameHeader(body.size(), more, &frame);
  return frame + body;
}

inline std::string MetaOf(int32_t number) {
  Meta meta;
  meta.timestamp = number;
  return EncodeMeta(meta);
}

inline std::string Hello() { return ZmtpGreeting() + ZmtpReady("DEALER", "ps9"); }

}  // namespace ps::test
