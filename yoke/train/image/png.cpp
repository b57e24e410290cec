#include <png.h>

#include <csetjmp>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/train/image/detail/decode.h"

namespace yoke::train::detail {
namespace {

// libpng reports an error through a callback that must not return. As in jpeg.cpp, the callback jumps back to
// `guarded`, which made the call.
struct PngDecoder {
  std::span<const std::byte> bytes;  // the bytes that are not read yet
  png_structp png = nullptr;
  png_infop info = nullptr;
  jmp_buf back;
  char message[128] = "";

  explicit PngDecoder(std::span<const std::byte> all) : bytes(all) {}
  PngDecoder(const PngDecoder&) = delete;
  ~PngDecoder() { png_destroy_read_struct(&png, &info, nullptr); }
};

[[noreturn]] void fail(png_structp png, png_const_charp message) {
  auto* decoder = static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::strncpy(decoder->message, message, sizeof decoder->message - 1);
  longjmp(decoder->back, 1);
}

// libpng warns only about metadata; damaged pixels are an error.
void ignore(png_structp, png_const_charp) {}

void read_bytes(png_structp png, png_bytep to, size_t size) {
  auto* decoder = static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (size > decoder->bytes.size()) png_error(png, "truncated");
  std::memcpy(to, decoder->bytes.data(), size);
  decoder->bytes = decoder->bytes.subspan(size);
}

template <typename Argument>
[[gnu::noinline]] bool guarded(PngDecoder& decoder, void (*step)(PngDecoder&, Argument&), Argument& argument) {
  if (setjmp(decoder.back) != 0) return false;
  step(decoder, argument);
  return true;
}

struct PngHeader {
  png_uint_32 width, height;
};
void read_header(PngDecoder& decoder, PngHeader& header) {
  decoder.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &decoder, fail, ignore);
  if (decoder.png != nullptr) decoder.info = png_create_info_struct(decoder.png);
  if (decoder.info == nullptr) {
    std::strcpy(decoder.message, "no memory");
    longjmp(decoder.back, 1);
  }
  png_set_user_limits(decoder.png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);  // the caller checks the size
  png_set_read_fn(decoder.png, &decoder, read_bytes);
  png_read_info(decoder.png, decoder.info);
  header = {png_get_image_width(decoder.png, decoder.info), png_get_image_height(decoder.png, decoder.info)};
}

// Sets `num_passes` to 7 for an interlaced image.
void start(PngDecoder& decoder, int& num_passes) {
  auto* const png = decoder.png;
  if (png_get_color_type(png, decoder.info) == PNG_COLOR_TYPE_PALETTE) png_set_palette_to_rgb(png);
  png_set_expand_gray_1_2_4_to_8(png);
  png_set_strip_16(png);
  png_set_strip_alpha(png);
  png_set_gray_to_rgb(png);
  num_passes = png_set_interlace_handling(png);
  png_read_update_info(png, decoder.info);
  if (png_get_rowbytes(png, decoder.info) != size_t{3} * png_get_image_width(png, decoder.info)) {
    png_error(png, "libpng does not convert it to RGB");
  }
}

struct PngRows {
  Region region;
  png_uint_32 height;
  int num_passes;
  uint8_t* to;
  uint8_t* whole_row;  // if null, rows are read directly to `to`
};
void read_rows(PngDecoder& decoder, PngRows& rows) {
  const size_t row_bytes = size_t{3} * static_cast<size_t>(rows.region.width);
  const auto top = static_cast<png_uint_32>(rows.region.top), count = static_cast<png_uint_32>(rows.region.height);
  for (int pass = 0; pass < rows.num_passes; ++pass) {
    for (png_uint_32 y = 0; y < rows.height; ++y) {
      const bool needed = y >= top && y < top + count;
      uint8_t* to = rows.to + (y - top) * row_bytes;
      if (rows.whole_row == nullptr) {
        png_read_row(decoder.png, to, nullptr);
      } else {
        png_read_row(decoder.png, rows.whole_row, nullptr);
        if (needed) std::memcpy(to, rows.whole_row + size_t{3} * static_cast<size_t>(rows.region.left), row_bytes);
      }
    }
  }
  png_read_end(decoder.png, nullptr);
}

}  // namespace

void decode_png(std::span<const std::byte> bytes, const DecodeCalls& calls, Pixels& pixels) {
  PngDecoder decoder(bytes);
  const auto check = [&](bool succeeded) {
    if (!succeeded) throw Error(ErrorCode::kDataLoss, "{}: damaged PNG: {}", calls.name, decoder.message);
  };
  PngHeader header{};
  check(guarded(decoder, read_header, header));
  calls.check_size(header.width, header.height);
  const int width = static_cast<int>(header.width), height = static_cast<int>(header.height);
  pixels.region = calls.choose({.width = width, .height = height}).region;
  int num_passes = 1;
  check(guarded(decoder, start, num_passes));

  // An interlaced image is read in seven passes, each over the whole image.
  const Region whole{.width = width, .height = height};
  if (num_passes > 1) pixels.region = whole;
  const auto& region = pixels.region;
  uint8_t* const to = pixels.memory(size_t{3} * static_cast<size_t>(region.width) * static_cast<size_t>(region.height));
  std::vector<uint8_t> whole_row;
  if (region.width < width || region.height < height) whole_row.resize(size_t{3} * header.width);
  PngRows rows{region, header.height, num_passes, to, whole_row.empty() ? nullptr : whole_row.data()};
  check(guarded(decoder, read_rows, rows));
}

}  // namespace yoke::train::detail
