// Writes the golden messages, one a file, for meta_fuzz to start from: fuzz_corpus FOLDER.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "ps-lite/golden.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "usage: fuzz_corpus FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[1];
  std::filesystem::create_directories(folder);
  for (const ps::testing::Golden& golden : ps::testing::AllGolden()) {
    std::ofstream file(folder / golden.name, std::ios::binary);
    file << ps::testing::FromHex(golden.hex);
    if (!file.flush()) {
      std::cerr << "cannot write " << folder / golden.name << "\n";
      return 1;
    }
  }
}
