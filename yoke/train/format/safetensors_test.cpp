#include "yoke/train/format/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <functional>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/train/format/safetensors_reader.h"

namespace yoke::train {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class SafetensorsTest : public testing::Test {
 protected:
  fs::path write(const std::string& bytes) const {
    const auto path = folder_ / "t.safetensors";
    replace_file(path, [&](int fd) { write_all(fd, std::as_bytes(std::span(bytes)), "t"); });
    return path;
  }

  const test::TemporaryFolder temporary_;
  const fs::path folder_ = temporary_.path();
};

/// A file made of a header and data, with the correct length field.
std::string file_of(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  return file + header + std::string(data_bytes, '\1');
}

bool same(const at::Tensor& a, const at::Tensor& b) {
  const auto dense = b.contiguous();
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.numel() == 0 || std::memcmp(a.data_ptr(), dense.data_ptr(), a.nbytes()) == 0);
}

TEST_F(SafetensorsTest, EveryDtypeComesBackBitForBit) {
  TensorMap tensors;
  for (const auto dtype :
       {at::kDouble, at::kFloat, at::kHalf, at::kBFloat16, at::kLong, at::kInt, at::kShort, at::kChar, at::kByte,
        at::ScalarType::UInt16, at::ScalarType::UInt32, at::ScalarType::UInt64, at::ScalarType::ComplexFloat,
        at::ScalarType::Float8_e4m3fn, at::ScalarType::Float8_e4m3fnuz, at::ScalarType::Float8_e5m2,
        at::ScalarType::Float8_e5m2fnuz, at::ScalarType::Float8_e8m0fnu, at::ScalarType::Float4_e2m1fn_x2}) {
    const auto bytes = static_cast<int64_t>(c10::elementSize(dtype));
    const auto random = at::randint(256, {3, 5 * bytes}, at::kByte);  // any bits, including NaNs with payloads
    tensors[c10::toString(dtype)] = random.view(dtype);
  }
  tensors["Bool"] = at::randint(2, {7}, at::kBool);
  tensors["scalar"] = at::full({}, 3.5, at::kFloat);
  tensors["empty"] = at::zeros({0, 4}, at::kHalf);
  tensors["strided"] = at::arange(24, at::kInt).reshape({2, 3, 4}).permute({2, 0, 1});
  tensors["expanded"] = at::full({1}, 7, at::kLong).expand({5});
  tensors[""] = at::full({2}, 1, at::kByte);
  tensors["\"\\\n\xc3\xa9"] = at::full({2}, 2, at::kByte);
  const StringMap metadata{{"format", "pt"}, {"a \"key\"", "line\nline"}};

  write_safetensors(folder_ / "t", tensors, metadata);
  const auto read = read_safetensors(folder_ / "t");
  EXPECT_EQ(read.metadata, metadata);
  ASSERT_EQ(read.tensors.size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    ASSERT_TRUE(read.tensors.contains(name)) << name;
    EXPECT_TRUE(same(read.tensors.at(name), tensor)) << name;
    EXPECT_TRUE(read.tensors.at(name).is_contiguous()) << name;
  }
}

TEST_F(SafetensorsTest, NothingIsAFileToo) {
  write_safetensors(folder_ / "t", {});
  EXPECT_EQ(read_file(folder_ / "t"), file_of("{}      ", 0));
  EXPECT_TRUE(read_safetensors(folder_ / "t").tensors.empty());
}

// The expected bytes follow the format's documentation: wide dtypes first, the header padded to 8.
TEST_F(SafetensorsTest, WritesTheDocumentedBytes) {
  const auto b = at::tensor({1.0f, -2.0f}).reshape({2, 1});
  write_safetensors(folder_ / "t", {{"a", at::tensor({int64_t{5}, int64_t{6}}, at::kByte)}, {"b", b}}, {{"k", "v"}});
  std::string header = R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                       R"("a":{"dtype":"U8","shape":[2],"data_offsets":[8,10]}})";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const std::string data("\x00\x00\x80\x3f\x00\x00\x00\xc0\x05\x06", 10);
  EXPECT_EQ(read_file(folder_ / "t"), file_of(header, 0) + data);
}

TEST_F(SafetensorsTest, ReadsWhatOthersWrite) {
  // Fields and data in a different order, and white space.
  const auto path = write(file_of(
      "{ \"x\" : {\"data_offsets\":[4, 6], \"shape\":[2], \"dtype\":\"U8\"},\n"
      " \"y\":{\"shape\":[],\"dtype\":\"F32\",\"data_offsets\":[0,4]}, \"z\":{\"dtype\":\"I64\",\"shape\":[3,0],"
      "\"data_offsets\":[4,4]} }",
      6));
  const auto read = read_safetensors(path);
  EXPECT_EQ(read.tensors.size(), 3u);
  EXPECT_EQ(read.tensors.at("x")[1].item<int64_t>(), 1);
  EXPECT_EQ(read.tensors.at("y").dim(), 0);
  EXPECT_EQ(read.tensors.at("z").sizes(), (std::vector<int64_t>{3, 0}));
}

// The reference reader takes null for absent metadata.
TEST_F(SafetensorsTest, MetadataMayBeNull) {
  const auto read = read_safetensors(
      write(file_of(R"({"__metadata__":null,"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1)));
  EXPECT_TRUE(read.metadata.empty());
  EXPECT_EQ(read.tensors.size(), 1u);
}

// As the reference: two elements of F4 are one of torch's, and F6 exists in the format only.
TEST_F(SafetensorsTest, ReadsWhatIsBesideF4AndF6) {
  const auto path = write(file_of(R"({"four":{"dtype":"F4","shape":[2,6],"data_offsets":[0,6]},)"
                                  R"("six":{"dtype":"F6_E2M3","shape":[4],"data_offsets":[6,9]},)"
                                  R"("odd":{"dtype":"F4","shape":[2,3],"data_offsets":[9,12]},)"
                                  R"("t":{"dtype":"U8","shape":[2],"data_offsets":[12,14]}})",
                                  14));
  const SafetensorsReader reader(path);
  EXPECT_EQ(reader.tensor("t").sum().item<int64_t>(), 2);
  const auto four = reader.tensor("four");
  EXPECT_EQ(four.scalar_type(), at::ScalarType::Float4_e2m1fn_x2);
  EXPECT_EQ(four.sizes(), (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(four.view(at::kByte).sum().item<int64_t>(), 6);
  EXPECT_EQ(reader.rows("four", 1, 1).sizes(), (std::vector<int64_t>{1, 3}));
  for (const std::string name : {"six", "odd"}) {
    EXPECT_EQ(reader.bytes(name).size(), 3u);
    const auto type = name == "six" ? "F6_E2M3" : "F4";
    for (const auto& read :
         std::vector<std::function<void()>>{[&] { reader.tensor(name); }, [&] { reader.rows(name, 0, 1); },
                                            [&] { reader.elements(name, 0, 1); }, [&] { read_safetensors(path); }}) {
      const auto said = test::message_of(read, ErrorCode::kFailedPrecondition);
      EXPECT_THAT(said, testing::AllOf(HasSubstr(path.string()), HasSubstr("libtorch cannot have tensor '")));
    }
    EXPECT_THAT(test::message_of([&] { reader.tensor(name); }, ErrorCode::kFailedPrecondition), HasSubstr(type));
  }
}

TEST_F(SafetensorsTest, RefusesMalformedFiles) {
  struct Case {
    std::string file;
    std::string reason;
  };
  const auto tensor = [](const std::string& fields, size_t bytes = 4) {
    return file_of("{\"t\":{" + fields + "}}", bytes);
  };
  const std::string huge = "9223372036854775807";
  const std::vector<Case> cases = {
      {"", "0 bytes are not a safetensors file"},
      {"1234567", "7 bytes are no"},
      {std::string(8, '\0'), "not a JSON object"},
      {std::string(8, '\xff') + "{}", "over the limit"},
      {std::string("\x40\0\0\0\0\0\0\0{}", 10), "its header alone needs 72"},
      {file_of("[]", 0), "not a JSON object"},
      {file_of(" {}", 0), "not a JSON object"},
      {file_of("{", 0), "not a JSON object"},
      {file_of("{}x", 0), "not a JSON object"},
      {file_of("{}" + std::string(6, '\0'), 0), "not a JSON object (at its byte 2)"},
      {tensor(R"("dtype":"F6_E3M2","shape":[3],"data_offsets":[0,3])", 3), "ends inside a byte"},
      {tensor(R"("dtype":"F4","shape":[],"data_offsets":[0,1])", 1), "ends inside a byte"},
      {tensor(R"("dtype":"F4","shape":[4],"data_offsets":[0,4])"), "has 4 bytes, its dtype and shape need 2"},
      {file_of("{\"\xff\":{}}", 0), "not a JSON object"},
      {file_of(std::string(1000000, '{'), 0), "not a JSON object"},
      {file_of("{\"t\":" + std::string(1000000, '['), 0), "'t' is a list, not an object"},
      {file_of("{\"t\":null}", 0), "'t' is null, not an object"},
      {file_of("{\"t\":7}", 0), "'t' is a number, not an object"},
      {file_of("{\"t\":{\"dtype\":{\"a\":1}}}", 0), "has an object"},
      {file_of("{\"__metadata__\":{\"a\":1}}", 0), "'a' of '__metadata__' is or has a number"},
      {file_of("{\"__metadata__\":{\"a\":[\"b\"]}}", 0), "'a' of '__metadata__' is or has a list"},
      {file_of("{\"__metadata__\":{\"a\":\"1\",\"a\":\"2\"}}", 0), "'a' of '__metadata__' appears twice"},
      {file_of("{\"__metadata__\":{},\"__metadata__\":{}}", 0), "'__metadata__' appears twice"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4]},"t":{"dtype":"F32","shape":[1],"data_offsets":[0,4])"),
       "'t' appears twice"},
      {tensor(R"("dtype":"F32","dtype":"I32","shape":[1],"data_offsets":[0,4])"), "'dtype' of 't' appears twice"},
      {tensor(R"("dtype":"F33","shape":[1],"data_offsets":[0,4])"), "unknown dtype 'F33'"},
      {tensor(R"("dtype":7,"shape":[1],"data_offsets":[0,4])"), "has a number"},
      {tensor(R"("dtype":"F32","shape":"1","data_offsets":[0,4])"), "has a string"},
      {tensor(R"("dtype":"F32","shape":[[1]],"data_offsets":[0,4])"), "has a list"},
      {tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), "negative number"},
      {tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), "a fraction"},
      {tensor(R"("dtype":"F32","shape":[true],"data_offsets":[0,4])"), "a boolean"},
      {tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"), "over 63 bits"},
      {tensor(R"("dtype":"F32","shape":[184467440737095516160],"data_offsets":[0,4])"), "over 64 bits"},
      {tensor(R"("dtype":"F32","shape":[)" + huge + "," + huge + R"(],"data_offsets":[0,4])"), "overflows"},
      {tensor(R"("dtype":"F32","shape":[0,)" + huge + R"(],"data_offsets":[0,0])", 0), "overflows"},
      {tensor(R"("dtype":"F32","shape":[)" + std::string(200, '1').replace(1, 0, "") + R"(],"data_offsets":[0,4])"),
       "over 64 bits"},
      {tensor(R"("dtype":"F32","shape":[1)" +
              [] {
                std::string ones;
                for (int i = 0; i < 64; ++i) ones += ",1";
                return ones;
              }() +
              R"(],"data_offsets":[0,4])"),
       "too many numbers"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4],"extra":"x")"), "unknown field 'extra'"},
      {tensor(R"("dtype":"F32","shape":[1])"), "no data_offsets"},
      {tensor(R"("shape":[1],"data_offsets":[0,4])"), "no dtype"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0])"), "not a begin and an end"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,4])"), "too many numbers"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), "not a begin and an end"},
      {tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), "has 4 bytes, its dtype and shape need 8"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", 3), "truncated: 3 bytes of data"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4])", 5), "longer than it should be"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,8])", 8), "begins at byte 4 of the data, where 0"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"F32","shape":[1],"data_offsets":[2,6])",
              6),
       "'u' begins at byte 2 of the data, where 4"},
      {tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4]},"u":{"dtype":"F32","shape":[1],"data_offsets":[8,12])",
              12),
       "'u' begins at byte 8 of the data, where 4"},
      {tensor(R"("dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,4])"), "overflows"},
      {tensor(R"("dtype":"U8","shape":[)" + huge + R"(],"data_offsets":[0,)" + huge + "]"), "truncated"},
  };
  for (const auto& [file, reason] : cases) {
    const auto path = write(file);
    try {
      read_safetensors(path);
      ADD_FAILURE() << "accepted: " << file.substr(0, 200);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kDataLoss) << error.what();
      EXPECT_THAT(error.what(), HasSubstr(path.string() + ": ")) << file.substr(0, 200);
      EXPECT_THAT(error.what(), HasSubstr(reason)) << file.substr(0, 200);
    }
  }
}

TEST_F(SafetensorsTest, RefusesABoolThatIsNone) {
  std::string file = file_of(R"({"t":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", 3);
  EXPECT_EQ(read_safetensors(write(file)).tensors.at("t").sum().item<int64_t>(), 3);
  file.back() = '\2';
  EXPECT_THROW(read_safetensors(write(file)), Error);
}

TEST_F(SafetensorsTest, RefusesToWriteWhatTheFormatLacks) {
  const auto path = folder_ / "t";
  const auto one = at::full({1}, 1.0);
  const auto refuse = [&](const TensorMap& tensors, const StringMap& metadata, const std::string& reason) {
    try {
      write_safetensors(path, tensors, metadata);
      ADD_FAILURE() << "accepted; expected: " << reason;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr(reason));
    }
  };
  refuse({{"t", at::Tensor()}}, {}, "tensor 't' is undefined");
  refuse({{"t", one.to(at::kComplexDouble)}}, {}, "tensor 't' is of the dtype ComplexDouble");
  refuse({{"t", one.to_sparse()}}, {}, "tensor 't' is not strided");
  refuse({{"t", one.to(at::kMeta)}}, {}, "tensor 't' is without data");
  refuse({{"__metadata__", one}}, {}, "a name that the format reserves");
  refuse({{"\xff", one}}, {}, "is not UTF-8");
  refuse({{"t", one}}, {{"k", "\xff"}}, "metadata 'k' is not UTF-8");
  EXPECT_FALSE(fs::exists(path));
}

}  // namespace
}  // namespace yoke::train
