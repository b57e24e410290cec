// clang-format off
#include <cstdio>  // must come before jpeglib.h, which uses it
#include <jpeglib.h>
#include <jerror.h>
// clang-format on

#include <algorithm>
#include <array>
#include <csetjmp>
#include <cstring>

#include "yoke/base/error.h"
#include "yoke/train/image/detail/decode.h"

namespace yoke::train::detail {
namespace {

// libjpeg reports an error through a callback that must not return. All calls that may fail are made inside `guarded`,
// and the callback jumps back to it by longjmp, which runs no destructors. So the functions in between have no C++
// objects that need destruction.
struct JpegErrors {
  jpeg_error_mgr manager;  // must be first: libjpeg passes only its address
  jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void jump_back(j_common_ptr common) {
  auto* errors = reinterpret_cast<JpegErrors*>(common->err);
  (*common->err->format_message)(common, errors->message);
  longjmp(errors->back, 1);
}

// For damaged data libjpeg only warns, and invents pixels that are often grey. So such a warning is an error here.
// Warnings about metadata or extra bytes are ignored, because all pixels are right.
void on_message(j_common_ptr common, int level) {
  if (level >= 0) return;  // not a warning
  switch (common->err->msg_code) {
    case JWRN_EXTRANEOUS_DATA:    // bytes before a marker
    case JWRN_TOO_MUCH_DATA:      // more rows than the header says
    case JWRN_ADOBE_XFORM:        // an unknown colour transform in Adobe's marker
    case JWRN_JFIF_MAJOR:         // a newer version of JFIF
    case JWRN_BOGUS_PROGRESSION:  // the order of a progressive image's scans
    case JWRN_BOGUS_ICC: return;
    default: jump_back(common);
  }
}

struct JpegDecoder {
  jpeg_decompress_struct info{};
  JpegErrors errors{};
  bool created = false;

  JpegDecoder() {
    info.err = jpeg_std_error(&errors.manager);
    errors.manager.error_exit = jump_back;
    errors.manager.emit_message = on_message;
  }
  JpegDecoder(const JpegDecoder&) = delete;
  ~JpegDecoder() {
    if (created) jpeg_destroy_decompress(&info);
  }
};

// Calls step(decoder, argument), and returns whether it succeeded. After a failure the message is in decoder.errors.
template <typename Argument>
[[gnu::noinline]] bool guarded(JpegDecoder& decoder, void (*step)(JpegDecoder&, Argument&), Argument& argument) {
  if (setjmp(decoder.errors.back) != 0) return false;
  step(decoder, argument);
  return true;
}

void read_header(JpegDecoder& decoder, std::span<const std::byte>& bytes) {
  jpeg_create_decompress(&decoder.info);
  decoder.created = true;
  jpeg_mem_src(&decoder.info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&decoder.info, TRUE);
}

void start(JpegDecoder& decoder, const DecodeRequest& request) {
  auto& info = decoder.info;
  info.scale_num = 1;
  info.scale_denom = static_cast<unsigned>(request.shrink);
  const bool cmyk = info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK;
  info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
  jpeg_start_decompress(&info);
}

// Returns whether libjpeg can leave out columns. Versions of libjpeg-turbo before 3.0 compute the width of a cropped
// component from its sampling factor alone. That is wrong if libjpeg decodes the component at a larger scale than the
// others and upsamples it as well, for example with 4x2 or 2x4 sampling and a shrunk image: then the end of each row of
// the component stays undefined. Source: libjpeg-turbo's ChangeLog.md, "miscalculated the downsampled width" (#669).
bool can_crop_columns(const jpeg_decompress_struct& info) {
  return std::all_of(info.comp_info, info.comp_info + info.num_components, [&](const jpeg_component_info& component) {
    const bool is_upsampled =
        component.downsampled_width < info.output_width || component.downsampled_height < info.output_height;
    const auto factor = static_cast<JDIMENSION>(component.h_samp_factor);
    const auto most = static_cast<JDIMENSION>(info.max_h_samp_factor);
    return !is_upsampled || component.downsampled_width == (info.output_width * factor + most - 1) / most;
  });
}

// The columns to decode. crop_columns() asks libjpeg for the region's columns, and sets `first` and `width` to the
// columns that libjpeg will decode: whole blocks, or all columns. Upsampled colours depend on neighbouring columns.
// With two more columns on either side, the region has the same pixels as in the whole image.
struct JpegColumns {
  JDIMENSION first, width;
};
void crop_columns(JpegDecoder& decoder, JpegColumns& columns) {
  auto& info = decoder.info;
  constexpr JDIMENSION kMargin = 2;
  const auto end = std::min(columns.first + columns.width + kMargin, info.output_width);
  columns.first -= std::min(columns.first, kMargin);
  columns.width = end - columns.first;
  if (!can_crop_columns(info)) columns = {0, info.output_width};
  if (columns.width < info.output_width) jpeg_crop_scanline(&info, &columns.first, &columns.width);
}

struct JpegRows {
  JDIMENSION first, end;
  uint8_t* to;
  size_t row_bytes;
};
void read_rows(JpegDecoder& decoder, JpegRows& rows) {
  auto& info = decoder.info;
  if (rows.first > 0) jpeg_skip_scanlines(&info, rows.first);
  uint8_t* to = rows.to;
  while (info.output_scanline < rows.end) {
    constexpr JDIMENSION kMost = 8;  // libjpeg returns up to four rows at a time
    JSAMPROW pointers[kMost];
    const JDIMENSION count = std::min(kMost, rows.end - info.output_scanline);
    for (JDIMENSION i = 0; i < count; ++i) pointers[i] = to + i * rows.row_bytes;
    to += jpeg_read_scanlines(&info, pointers, count) * rows.row_bytes;
  }
}

// Returns whether the file has the end marker: it was read already, or is among the unread bytes. Without this marker
// the file is truncated, possibly after the rows that were needed.
bool has_end(const jpeg_decompress_struct& info) {
  if (info.unread_marker == JPEG_EOI || jpeg_input_complete(const_cast<j_decompress_ptr>(&info)) != FALSE) return true;
  const auto* begin = info.src->next_input_byte;
  for (const auto* at = begin + info.src->bytes_in_buffer; at - begin >= 2; --at) {
    if (at[-2] == 0xFF && at[-1] == JPEG_EOI) return true;
  }
  return false;
}

// Converts four inverted bytes per pixel to three bytes, in place, like Pillow.
void cmyk_to_rgb(Pixels& pixels) {
  const auto count = static_cast<size_t>(pixels.region.width) * static_cast<size_t>(pixels.region.height);
  const uint8_t* from = pixels.rgb.data();
  uint8_t* to = pixels.rgb.data();
  for (size_t i = 0; i < count; ++i, from += 4, to += 3) {
    std::array<uint8_t, 4> cmyk;
    std::memcpy(cmyk.data(), from, cmyk.size());
    for (size_t c = 0; c < 3; ++c) {
      const int product = (255 - cmyk[c]) * cmyk[3] + 128;
      to[c] = static_cast<uint8_t>(cmyk[3] - (((product >> 8) + product) >> 8));
    }
  }
}

}  // namespace

void decode_jpeg(std::span<const std::byte> bytes, const DecodeCalls& calls, Pixels& pixels) {
  JpegDecoder decoder;
  const auto check = [&](bool succeeded) {
    if (!succeeded) throw Error(ErrorCode::kDataLoss, "{}: damaged JPEG: {}", calls.name, decoder.errors.message);
  };
  check(guarded(decoder, read_header, bytes));
  const auto& info = decoder.info;
  calls.check_size(info.image_width, info.image_height);
  const DecodeRequest request = calls.choose(
      {.width = static_cast<int>(info.image_width), .height = static_cast<int>(info.image_height), .can_shrink = true});
  check(guarded(decoder, start, request));

  JpegColumns columns{static_cast<JDIMENSION>(request.region.left), static_cast<JDIMENSION>(request.region.width)};
  check(guarded(decoder, crop_columns, columns));
  pixels.region = {.left = static_cast<int>(columns.first),
                   .top = request.region.top,
                   .width = static_cast<int>(columns.width),
                   .height = request.region.height};
  const size_t row_bytes = static_cast<size_t>(columns.width) * static_cast<size_t>(info.output_components);
  JpegRows rows{static_cast<JDIMENSION>(request.region.top),
                static_cast<JDIMENSION>(request.region.top + request.region.height),
                pixels.memory(row_bytes * static_cast<size_t>(request.region.height)), row_bytes};
  check(guarded(decoder, read_rows, rows));
  if (!has_end(info)) {
    throw Error(ErrorCode::kDataLoss, "{}: truncated JPEG: its {} bytes do not contain the end of the image",
                calls.name, bytes.size());
  }
  if (info.out_color_space == JCS_CMYK) cmyk_to_rgb(pixels);
}

}  // namespace yoke::train::detail
