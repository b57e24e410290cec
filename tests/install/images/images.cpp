// Prints for each image file that it is given the means of red, green and blue: "FILE 200 100 50".
#include <ATen/Functions.h>

#include <cstdio>

#include "yoke/base/file.h"
#include "yoke/train/image/image_transform.h"

int print_means(int num_words, char** words) {
  const yoke::train::ImageDecoder decoder({.height = 8, .width = 8, .shorter_side = 8});
  for (int i = 1; i < num_words; ++i) {
    const auto bytes = yoke::read_file(words[i]);
    const auto batch = at::empty({1, 3, 8, 8}, at::kByte);
    yoke::train::SampleRandom random(0, 0, 0);
    decoder.decode(std::as_bytes(std::span(bytes)), words[i], random, batch, 0);
    const auto means = batch.to(at::kFloat).mean(at::IntArrayRef{0, 2, 3});
    std::printf("%s", words[i]);
    for (int64_t color = 0; color < 3; ++color) std::printf(" %.0f", means[color].item<double>());
    std::printf("\n");
  }
  return 0;
}
