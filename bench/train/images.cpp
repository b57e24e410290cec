// How many images per second does a loader read from a folder of JPEG files? Peer: peers/images.py.
//
//     images --make FOLDER [--count 256]      fills FOLDER with photo-like JPEG files of 500 x 375 pixels
//     images --scan FOLDER                    measures the seconds to list a FOLDER with one folder per class
//     images --folder FOLDER [--workers 1] [--batch 64] [--epochs 3]
//     images --tar FILE [--workers 1] [--batch 64] [--epochs 3]
//
// Prints one JSON object: images per second of the median epoch, as normalised float, for two transforms: that of
// evaluation (resize to 256, centre crop of 224 x 224) and that of training (random crop resized to 224 x 224, flips).
// For a tar file, it has the images per second for evaluation, the bytes per second of reading its samples without
// decoding, and the bytes per second of read(2) over the whole file.
// clang-format off
#include <cstdio>  // must come first, because jpeglib.h uses it
#include <jpeglib.h>
// clang-format on

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/data/tar_shards.h"
#include "yoke/train/image/image_folder.h"

namespace {

using yoke::train::SampleRandom;

constexpr int kWidth = 500, kHeight = 375;

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Returns smooth noise of several scales, boxes with edges, and a camera's noise. At quality 90, this takes 94 KB.
std::vector<uint8_t> photo(SampleRandom random) {
  std::vector<float> values(size_t{3} * kWidth * kHeight, 120);
  float strength = 55;
  for (int cell = 256; cell >= 4; cell /= 2, strength *= 0.62f) {
    const int columns = kWidth / cell + 2, rows = kHeight / cell + 2;
    std::vector<float> grid(static_cast<size_t>(3 * columns * rows));
    for (float& value : grid) value = strength * static_cast<float>(random.uniform(-1.7, 1.7));
    for (int y = 0; y < kHeight; ++y) {
      for (int x = 0; x < kWidth; ++x) {
        const float u = static_cast<float>(x % cell) / static_cast<float>(cell),
                    v = static_cast<float>(y % cell) / static_cast<float>(cell);
        for (int c = 0; c < 3; ++c) {
          const auto at = [&](int dx, int dy) {
            return grid[static_cast<size_t>(((y / cell + dy) * columns + x / cell + dx) * 3 + c)];
          };
          values[static_cast<size_t>((y * kWidth + x) * 3 + c)] +=
              (1 - v) * ((1 - u) * at(0, 0) + u * at(1, 0)) + v * ((1 - u) * at(0, 1) + u * at(1, 1));
        }
      }
    }
  }
  for (int box = 0; box < 12; ++box) {
    const auto left = random.below(kWidth), top = random.below(kHeight);
    const auto right = std::min<int64_t>(left + 10 + random.below(100), kWidth);
    const auto bottom = std::min<int64_t>(top + 10 + random.below(100), kHeight);
    const auto change = static_cast<float>(random.uniform(-80, 80));
    for (int64_t y = top; y < bottom; ++y) {
      for (int64_t i = 3 * left; i < 3 * right; ++i) values[static_cast<size_t>(3 * y * kWidth + i)] += change;
    }
  }
  std::vector<uint8_t> rgb(values.size());
  for (size_t i = 0; i < rgb.size(); ++i) {
    if (i % 3 == 0) {
      const auto noise = static_cast<float>(random.uniform(-28, 28));
      for (size_t c = i; c < i + 3; ++c) values[c] += noise;
    }
    rgb[i] = static_cast<uint8_t>(std::clamp(values[i], 0.0f, 255.0f));
  }
  return rgb;
}

void write_jpeg(const std::filesystem::path& path, std::vector<uint8_t> rgb) {
  std::FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) throw yoke::system_error(errno, path.string());
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // exits after an error
  jpeg_create_compress(&info);
  jpeg_stdio_dest(&info, file);
  info.image_width = kWidth;
  info.image_height = kHeight;
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    JSAMPROW row = rgb.data() + size_t{info.next_scanline} * 3 * kWidth;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::fclose(file);
}

void make_folder(const std::filesystem::path& folder, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const auto label = folder / ("class" + std::to_string(i % 4));
    std::filesystem::create_directories(label);
    write_jpeg(label / (std::to_string(i) + ".jpg"), photo(SampleRandom(1, 0, i)));
  }
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

template <class Source>
double images_per_second(Source source, const yoke::train::LoaderOptions& options, int64_t num_epochs) {
  yoke::train::Loader loader(std::move(source), options);
  std::vector<double> rates;
  for (int64_t epoch = 0; epoch <= num_epochs; ++epoch) {  // epoch 0 starts the workers, and is not counted
    const auto start = std::chrono::steady_clock::now();
    int64_t count = 0;
    for (const yoke::train::Batch& batch : loader.epoch(epoch)) {
      count += batch.target.size(0);
      if (!std::isfinite(batch.data.view(-1)[0].item<float>())) throw std::runtime_error("a value is not finite");
    }
    if (epoch > 0) rates.push_back(static_cast<double>(count) / seconds_since(start));
  }
  return median(rates);
}

struct TarImages {
  yoke::train::TarShards shards;
  yoke::train::ImageDecoder decoder;

  int64_t size() const { return shards.size(); }
  yoke::train::Batch batch(const yoke::train::BatchRequest& request) const {
    auto images = decoder.empty(request);
    auto targets = request.empty({request.size()}, at::kLong);
    request.for_each([&](int64_t row, int64_t sample, SampleRandom& random) {
      const auto files = shards.sample(sample);
      decoder.decode(std::as_bytes(std::span(files.at("jpg"))), files.key, random, images, row);
      targets.mutable_data_ptr<int64_t>()[row] = sample;
    });
    return {images, targets};
  }
};

struct NumBytes {
  int64_t operator()(const yoke::train::BatchRequest&, const std::vector<yoke::train::TarSample>& samples) const {
    int64_t count = 0;
    for (const auto& sample : samples) count += static_cast<int64_t>(sample.at("jpg").size());
    return count;
  }
};

double tar_bytes_per_second(const std::string& path, yoke::train::LoaderOptions options, int64_t num_epochs) {
  options.shuffle = false;
  yoke::train::Loader loader(yoke::train::TarShards({path}), options, NumBytes());
  std::vector<double> rates;
  for (int64_t epoch = 0; epoch <= num_epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    int64_t count = 0;
    for (const auto& num_bytes : loader.epoch(epoch)) count += num_bytes;
    if (epoch > 0) rates.push_back(static_cast<double>(count) / seconds_since(start));
  }
  return median(rates);
}

double file_bytes_per_second(const std::string& path, int64_t num_epochs) {
  std::vector<char> buffer(1 << 20);
  std::vector<double> rates;
  for (int64_t epoch = 0; epoch <= num_epochs; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    std::FILE* file = std::fopen(path.c_str(), "rb");
    if (file == nullptr) throw yoke::system_error(errno, path);
    std::setvbuf(file, nullptr, _IONBF, 0);
    size_t count = 0;
    while (const size_t read = std::fread(buffer.data(), 1, buffer.size(), file)) count += read;
    std::fclose(file);
    if (epoch > 0) rates.push_back(static_cast<double>(count) / seconds_since(start));
  }
  return median(rates);
}

}  // namespace

int main(int argc, char** argv) try {
  std::map<std::string, std::string> given{{"--make", ""}, {"--count", "256"}, {"--scan", ""},    {"--folder", ""},
                                           {"--tar", ""},  {"--workers", "1"}, {"--batch", "64"}, {"--epochs", "3"}};
  for (int i = 1; i < argc; i += 2) {
    if (!given.contains(argv[i]) || i + 1 == argc) {
      std::cerr << "usage: images --make FOLDER | --scan FOLDER | --folder FOLDER [--workers N] [--batch N] "
                   "[--epochs N] | --tar FILE [--workers N] [--batch N] [--epochs N]\n";
      return 2;
    }
    given[argv[i]] = argv[i + 1];
  }
  const auto number = [&](const char* name, int64_t least) {
    const auto value = yoke::parse_int(given[name]);
    if (!value || *value < least) {
      throw yoke::Error(yoke::ErrorCode::kInvalidArgument, "{} {}: expected a number from {}", name, given[name],
                        least);
    }
    return *value;
  };
  if (!given["--make"].empty()) {
    make_folder(given["--make"], number("--count", 4));
    return 0;
  }
  nlohmann::ordered_json result;
  if (!given["--scan"].empty()) {
    const auto start = std::chrono::steady_clock::now();
    const yoke::train::ImageFolder folder(given["--scan"]);
    result["seconds"] = seconds_since(start);
    result["files"] = folder.size();
  } else {
    const yoke::train::LoaderOptions options{.batch_size = number("--batch", 1), .num_workers = number("--workers", 0)};
    const auto num_epochs = number("--epochs", 1);
    yoke::train::ImageTransform transform{.normalization = yoke::train::imagenet_normalization()};
    const auto folder = [&] { return yoke::train::ImageFolder(given["--folder"], {.transform = transform}); };
    if (const auto& tar = given["--tar"]; !tar.empty()) {
      result["evaluation"] = images_per_second(
          TarImages{yoke::train::TarShards({tar}), yoke::train::ImageDecoder(transform)}, options, num_epochs);
      result["samples_bytes_per_second"] = tar_bytes_per_second(tar, options, num_epochs);
      result["file_bytes_per_second"] = file_bytes_per_second(tar, num_epochs);
    } else {
      result["evaluation"] = images_per_second(folder(), options, num_epochs);
      transform.random_crop = yoke::train::RandomResizedCrop{};
      transform.flip_probability = 0.5;
      result["training"] = images_per_second(folder(), options, num_epochs);
    }
  }
  std::cout << result << '\n';
  return 0;
} catch (const std::exception& error) {
  std::cerr << "images: " << error.what() << '\n';
  return 1;
}
