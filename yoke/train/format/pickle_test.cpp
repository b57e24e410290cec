#include "yoke/train/format/detail/pickle.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "yoke/base/error.h"
#include "yoke/base/utf8.h"

namespace yoke::train {
namespace {

using namespace std::string_literals;  // NOLINT(google-build-using-namespace): pickles contain zero bytes
using testing::HasSubstr;

Pickle parse(const std::string& bytes) { return parse_pickle(std::as_bytes(std::span(bytes)), "file"); }

/// Returns `body` as a pickle of protocol 2.
std::string pickle(const std::string& body) { return "\x80\x02" + body + "."; }

template <typename T>
T root(const std::string& body) {
  const auto parsed = parse(pickle(body));
  const auto* value = std::get_if<T>(&parsed.nodes[parsed.root]);
  EXPECT_NE(value, nullptr) << body;
  return value == nullptr ? T() : *value;
}

void expect_refused(const std::string& bytes, const std::string& reason) {
  try {
    const auto parsed = parse(bytes);
    const auto* opaque = std::get_if<PickleOpaque>(&parsed.nodes[parsed.root]);  // present, but cannot be read
    ASSERT_NE(opaque, nullptr) << "accepted; expected: " << reason;
    EXPECT_THAT(reason_of(*opaque), HasSubstr(reason));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kDataLoss);
    EXPECT_THAT(error.what(), HasSubstr("file: "));
    EXPECT_THAT(error.what(), HasSubstr(reason));
  }
}

TEST(Pickle, Numbers) {
  EXPECT_EQ(root<int64_t>("K\xff"), 255);
  EXPECT_EQ(root<int64_t>("M\x01\x02"), 0x201);
  EXPECT_EQ(root<int64_t>("J\xfe\xff\xff\xff"), -2);
  EXPECT_EQ(root<int64_t>("\x8a\x00"s), 0);
  EXPECT_EQ(root<int64_t>("\x8a\x01\xff"), -1);
  EXPECT_EQ(root<int64_t>("\x8a\x02\xff\x00"s), 255);
  EXPECT_EQ(root<int64_t>("\x8a\x08\x00\x00\x00\x00\x00\x00\x00\x80"s), INT64_MIN);
  EXPECT_EQ(root<int64_t>("\x8b\x01\x00\x00\x00\x7f"s), 127);
  EXPECT_EQ(root<double>("G\xbf\xf8\x00\x00\x00\x00\x00\x00"s), -1.5);
  EXPECT_TRUE(root<bool>("\x88"));
  EXPECT_FALSE(root<bool>("\x89"));
  root<std::monostate>("N");
}

TEST(Pickle, WhatLaterProtocolsWrite) {
  // pickle.dumps(["ab", ("ab",)], protocol=4), with a frame and memo.
  const auto parsed =
      parse("\x80\x04\x95\x0e\x00\x00\x00\x00\x00\x00\x00]\x94(\x8c\x02"s + "ab\x94h\x01\x85\x94" + "e.");
  const auto& list = std::get<PickleList>(parsed.nodes[parsed.root]).items;
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(std::get<std::string_view>(parsed.nodes[list[0]]), "ab");
  EXPECT_EQ(std::get<PickleTuple>(parsed.nodes[list[1]]).items, std::vector<PickleRef>{list[0]});
  // The name of the class is taken from the stack.
  EXPECT_TRUE(
      root<PickleDict>("X\x0b\x00\x00\x00"s + "collectionsX\x0b\x00\x00\x00"s + "OrderedDict\x93)R").items.empty());
}

// What cPickle of Python 2 writes with protocol 2: texts as bytes with a length, and integers over 32 bits as lines.
TEST(Pickle, WhatPython2Writes) {
  for (const auto& body : {"U\x04text"s, "T\x04\x00\x00\x00text"s}) {
    const auto bytes = pickle(body);
    const auto parsed = parse(bytes);
    EXPECT_EQ(std::get<std::string_view>(parsed.nodes[parsed.root]), "text");
  }
  const std::string ordered = "ccollections\nOrderedDict\n";  // with a list of pairs
  EXPECT_EQ(root<PickleDict>(ordered + "](](K\x01Ne](K\x02Nee\x85R").items.size(), 2u);
  expect_refused(pickle(ordered + "](](K\x01"
                                  "ee\x85R"),
                 "a pair of key and value has 1 parts");
  std::string many = "](";
  for (int i = 0; i < 100; ++i) many += "NN\x86";
  many += "eq\x01";
  for (int i = 0; i < 100; ++i) many += "0" + ordered + "h\x01\x85R";
  expect_refused(pickle(many), "the same objects over and over");
  EXPECT_EQ(root<int64_t>("I94100507458256\n"), 94100507458256);
  EXPECT_EQ(root<int64_t>("I-5\n"), -5);
  EXPECT_TRUE(root<bool>("I01\n"));
  EXPECT_FALSE(root<bool>("I00\n"));
  expect_refused(pickle("I99999999999999999999\n"), "an integer of over 64 bits");
  expect_refused(pickle("I1x\n"), "a line is not an integer");
  expect_refused(pickle("U\x02\xff\xfe"), "a text that is not UTF-8");
  expect_refused(pickle("T\xff\xff\xff\xff"
                        "abc"),
                 "4294967295 bytes are announced");
}

TEST(Pickle, OtherBytesMayFollowTheFirstPickle) {
  const auto bytes = pickle("K\x07") + pickle("N") + "more";
  const auto first = parse_first_pickle(std::as_bytes(std::span(bytes)), "file");
  EXPECT_EQ(std::get<int64_t>(first.nodes[first.root]), 7);
  EXPECT_EQ(first.num_bytes, pickle("K\x07").size());
}

TEST(Pickle, DevicesSizesAndAttributesOfAStateDict) {
  const auto parsed = parse(pickle("ctorch\ndevice\nX\x04\x00\x00\x00"s + "cudaK\x01\x86R"));
  EXPECT_EQ(std::get<std::string_view>(parsed.nodes[parsed.root]), "cuda:1");
  EXPECT_EQ(root<PickleTuple>("ctorch\nSize\n(K\x01K\x02t\x85R").items.size(), 2u);
  EXPECT_EQ(root<PickleGlobal>("ctorch\nbfloat16\n").dtype, "bfloat16");
  EXPECT_TRUE(root<PickleDict>("ccollections\nOrderedDict\n)R}X\x01\x00\x00\x00"s + "aNsb").items.empty());
}

// Python's pickle would run code for each of these.
TEST(Pickle, RefusesToRunAnything) {
  const std::string command = "X\x06\x00\x00\x00"s + "id > x";
  expect_refused(pickle("cposix\nsystem\n" + command + "\x85R"), "it names posix.system, which is not of tensors");
  expect_refused(pickle("cos\nsystem\n"), "it names os.system");  // refused although it only names the function
  expect_refused(pickle("cbuiltins\neval\n" + command + "\x85R"), "builtins.eval");
  expect_refused(pickle("c__builtin__\nexec\n" + command + "\x85R"), "__builtin__.exec");
  expect_refused(pickle("X\x05\x00\x00\x00"s + "posixX\x06\x00\x00\x00"s + "system\x93"), "it names posix.system");
  expect_refused(pickle("X\x05\x00\x00\x00"s + "torchX\x0d\x00\x00\x00"s + "serialization\x93"), "torch.serialization");
  expect_refused(pickle("(" + command + "iposix\nsystem\n"), "INST");
  expect_refused(pickle("(cposix\nsystem\n" + command + "o"), "OBJ");
  expect_refused(pickle("(ctorch\nSize\no"), "OBJ");
  expect_refused(pickle("ctorch\nSize\n)\x81"), "NEWOBJ");
  expect_refused(pickle("ctorch\nSize\n)}\x92"), "NEWOBJ_EX");
  expect_refused(pickle("\x82\x01"), "EXT");
  expect_refused(pickle("\x83\x01\x00"s), "EXT");
  expect_refused(pickle("\x84\x01\x00\x00\x00"s), "EXT");
  expect_refused(pickle("Pid\n"), "PERSID");
  expect_refused(pickle("ctorch\nload\n"), "it names torch.load");
  expect_refused(pickle("ctorch.storage\n_load_from_bytes\n"), "torch.storage._load_from_bytes");
  expect_refused(pickle("cnumpy.core.multiarray\n_reconstruct\n"), "numpy.core.multiarray._reconstruct");
  expect_refused(pickle("ctorch._utils\n_rebuild_sparse_tensor\n"), "torch._utils._rebuild_sparse_tensor");
  expect_refused(pickle("ctorch\nfloat32 \n"), "it names torch.float32?");
  expect_refused(pickle("ctorch\n\x1b[2J\n"), "it names torch.?[2J");
  // A known name may be called only as torch.save calls it, and a pickle must not set attributes on it.
  expect_refused(pickle("ctorch\nfloat32\n)R"), "REDUCE");
  expect_refused(pickle("ctorch\nFloatStorage\nK\x01\x85R"), "REDUCE");
  expect_refused(pickle(command + ")R"), "REDUCE of an object that is not a name");
  expect_refused(pickle("]}b"), "BUILD on an object that is not a dictionary");
  expect_refused(pickle("ctorch\nSize\n}b"), "BUILD");
  expect_refused(pickle("B\x00\x00\x00\x00"s), "it has bytes");
  expect_refused(pickle("\x8f(K\x01\x90"), "it has a set");
  expect_refused(pickle("(K\x01\x91"), "it has a set");
  expect_refused(pickle("](K\x01\x90"), "ADDITEMS");
  expect_refused(pickle("cposix\nsystem\n)\x81}b"), "it names posix.system");
  expect_refused(pickle("cposix\nsystem\n)}\x92"), "it names posix.system");
}

TEST(Pickle, RefusesStoragesAndTensorsOfOtherShape) {
  const std::string storage =
      "(X\x07\x00\x00\x00"s + "storagectorch\nFloatStorage\nX\x01\x00\x00\x00"s + "0X\x03\x00\x00\x00"s + "cpuK\x04tQ";
  const auto tensor = [&](const std::string& rest) { return "ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest; };
  const std::string end =
      "\x89"
      "ccollections\nOrderedDict\n)RtR";
  const auto good = root<PickleTensor>(tensor("K\x00K\x02\x85K\x01\x85"s + end));
  EXPECT_EQ(good.sizes, std::vector<int64_t>{2});
  EXPECT_EQ(good.dtype, "float32");

  expect_refused(pickle("K\x01Q"), "a persistent id that describes a storage");
  expect_refused(pickle(")Q"), "a persistent id of 0 parts");
  expect_refused(pickle("(X\x06\x00\x00\x00"s + "moduleNNNNtQ"), "a persistent id of something other than a storage");
  expect_refused(pickle("(X\x07\x00\x00\x00"s + "storageNNNNtQ"), "a storage class is expected");
  expect_refused(pickle("(X\x07\x00\x00\x00"s + "storagectorch\nSize\nNNNtQ"), "a storage class is expected");
  expect_refused(pickle("(X\x07\x00\x00\x00"s + "storagectorch\nFloatStorage\nK\x01NNtQ"), "a storage's key");
  expect_refused(pickle("(X\x07\x00\x00\x00"s + "storagectorch\nFloatStorage\nX\x00\x00\x00\x00X\x00\x00\x00\x00"s +
                        "J\xff\xff\xff\xfftQ"),
                 "a storage of -1 elements");
  expect_refused(pickle("ctorch._utils\n_rebuild_tensor_v2\n)R"), "a call with 0 arguments");
  expect_refused(pickle("ctorch._utils\n_rebuild_tensor_v2\n(NK\x00))"s + end), "a tensor's storage is expected");
  expect_refused(pickle(tensor("N))" + end)), "a tensor's offset is expected");
  expect_refused(pickle(tensor("K\x00N)"s + end)), "a tensor's size is expected");
  expect_refused(pickle(tensor("K\x00(\x88t)"s + end)), "a tensor's size is expected");
  std::string many = "K\x00("s;
  for (int i = 0; i < 65; ++i) many += "K\x01";
  expect_refused(pickle(tensor(many + "t)" + end)), "a tensor's size has 65 parts");
  expect_refused(pickle(tensor("K\x00))\x89}}X\x01\x00\x00\x00"s + "x\x88stR")), "a tensor with the mark 'x'");
  expect_refused(pickle("ctorch._utils\n_rebuild_parameter\n(N\x88NtR"), "a parameter's tensor is expected");
}

const std::string kFloats =  // the storage '0' of four floats
    "((X\x07\x00\x00\x00"s + "storagectorch\nFloatStorage\nX\x01\x00\x00\x00"s + "0X\x03\x00\x00\x00"s + "cpuK\x04tQ";
const std::string kTwoFloats =  // a call of _rebuild_tensor_v2, without the function and REDUCE
    kFloats +
    "K\x01K\x02\x85K\x01\x85\x89"
    "ccollections\nOrderedDict\n)Rt";

// A tensor or parameter with attributes of its own: only its values are read.
TEST(Pickle, TensorsOfAClass) {
  const auto of_class = [](const std::string& function, const std::string& type) {
    return "ctorch._tensor\n_rebuild_from_type_v2\n(c" + function + "\nc" + type + "\n" + kTwoFloats +
           "}X\x04\x00\x00\x00"s + "noteK\x03stR";
  };
  const std::string rebuild = "torch._utils\n_rebuild_tensor_v2";
  for (const std::string type : {"torch\nTensor", "torch.nn.parameter\nParameter"}) {
    const auto tensor = root<PickleTensor>(of_class(rebuild, type));
    EXPECT_EQ(tensor.sizes, std::vector<int64_t>{2});
    EXPECT_EQ(tensor.offset, 1);
  }
  expect_refused(pickle(of_class(rebuild, "__main__\nPacked")), "it names __main__.Packed");  // may mean other values
  expect_refused(pickle(of_class("posix\nsystem", "torch\nTensor")), "it names posix.system");
  expect_refused(pickle(of_class(rebuild, "torch\nSize")), "a tensor's class is expected");
  expect_refused(pickle(of_class("torch._tensor\n_rebuild_from_type_v2", "torch\nTensor")), "is made of another one");
  expect_refused(pickle("ctorch._tensor\n_rebuild_from_type_v2\n)R"), "a call with 0 arguments");
}

// Before torch 0.4: classes of tensors, parameters that are called as classes, and data in the attributes.
TEST(Pickle, TensorsOfOldVersions) {
  const std::string state = kFloats + "K\x00K\x03\x85K\x01\x85tb"s;
  for (const std::string made : {")R", ")\x81"}) {
    const auto tensor = root<PickleTensor>("ctorch\nFloatTensor\n" + made + state);
    EXPECT_EQ(tensor.sizes, std::vector<int64_t>{3});
    EXPECT_EQ(tensor.dtype, "float32");
    EXPECT_EQ(root<PickleTensor>("ctorch.cuda\nLongTensor\n" + made + state).sizes, std::vector<int64_t>{3});
  }
  const auto tensor = "ctorch._utils\n_rebuild_tensor_v2\n" + kTwoFloats + "R";
  for (const std::string made : {"\x85R", "\x85\x81", "\x88\x86R"}) {
    EXPECT_EQ(root<PickleTensor>("ctorch.nn.parameter\nParameter\n" + tensor + made).sizes, std::vector<int64_t>{2});
    EXPECT_EQ(root<PickleTensor>("ctorch.nn.parameter\nParameter\n" + tensor + made + "(\x88\x89Ntb").sizes,
              std::vector<int64_t>{2});
  }
  EXPECT_EQ(root<PickleTensor>("ctorch.autograd.variable\nVariable\n)\x81(" + tensor + "NN\x88\x89tb").sizes,
            std::vector<int64_t>{2});
  expect_refused(pickle("ctorch\nFloatTensor\n)R"), "a tensor without a storage");
  expect_refused(pickle("ctorch\nFloatTensor\n)R(NNNNtb"), "a tensor without a storage");
  expect_refused(pickle("ctorch\nFloatTensor\nK\x01\x85R"), "a parameter's tensor is expected");
}

// Before torch 0.4 tensors could have a part of a storage, whose key and place are the sixth value.
TEST(Pickle, PartsOfStorages) {
  const auto part = [](const std::string& view) { return kFloats.substr(1, kFloats.size() - 3) + view + "tQ"; };
  const auto storage = root<PickleStorage>(part("(X\x01\x00\x00\x00"s + "1K\x01K\x03t"));
  EXPECT_EQ(storage.num_elements, 4);
  EXPECT_EQ(storage.first, 1);
  EXPECT_EQ(storage.count, 3);
  EXPECT_EQ(root<PickleStorage>(part("N")).count, 4);
  expect_refused(pickle(part("(NK\x02K\x03t")), "3 elements from element 2 on of a storage with 4");
  expect_refused(pickle(part("(NJ\xff\xff\xff\xffK\x01t")), "1 elements from element -1 on");
  expect_refused(pickle(part("(NK\x01J\xff\xff\xff\xfft")), "-1 elements from element 1 on");
  expect_refused(pickle(part("(NK\x01t")), "2 values instead of 3");
  expect_refused(pickle(part("K\x01")), "a part of a storage is expected");
}

// A module that was saved whole has its class with the text of its source; neither is used.
TEST(Pickle, ModulesAreNeverMade) {
  const std::string id =
      "(X\x06\x00\x00\x00"s + "modulec__main__\nNet\nX\x04\x00\x00\x00"s + "a.pyX\x04\x00\x00\x00"s + "codetQ";
  expect_refused(pickle(id + ")\x81}b"), "it names __main__.Net");
  EXPECT_EQ(root<PickleList>("](c__main__\nOld\no}baNa").items.size(), 2u);  // an old class of Python 2
  EXPECT_EQ(root<PickleList>("]" + id +
                             ")\x81}baK\x01"
                             "a")
                .items.size(),
            2u);
}

// A tensor of unknown parts does not keep the rest from being read.
TEST(Pickle, TensorsOfUnknownPartsAreUnknown) {
  const std::string quantized = "((X\x07\x00\x00\x00"s + "storagectorch\nQInt8Storage\nX\x01\x00\x00\x00"s +
                                "0X\x03\x00\x00\x00"s + "cpuK\x04tQK\x00))\x89}tR"s;
  expect_refused(pickle("ctorch._utils\n_rebuild_tensor_v2\n" + quantized), "it names torch.QInt8Storage");
  EXPECT_EQ(root<PickleList>("]ctorch._utils\n_rebuild_tensor_v2\n" + quantized +
                             "aK\x01"
                             "a")
                .items.size(),
            2u);
  const auto of_dtype = "ctorch._utils\n_rebuild_tensor_v3\n" + kFloats + "K\x00))\x89}ctorch\nbits8\ntR"s;
  expect_refused(pickle(of_dtype), "it names torch.bits8");
  expect_refused(pickle("ctorch._utils\n_rebuild_parameter\n(" + of_dtype + "\x88}tR"), "it names torch.bits8");
}

TEST(Pickle, RefusesWhatIsMalformed) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "1 bytes are announced, but 0 are left"},
      {"(dp0\n.", "does not begin as a pickle"},
      {"\x80\x01.", "protocol 1"},
      {"\x80\x06.", "protocol 6"},
      {"\x80\x02", "1 bytes are announced"},
      {pickle(""), "ends with 0 objects"},
      {pickle("NN"), "ends with 2 objects"},
      {pickle("N("), "ends with 1 objects"},
      {pickle("N") + "N", "1 bytes follow"},
      {pickle("0"), "its stack is empty"},
      {pickle("N(0"), "its stack is empty"},
      {pickle("t"), "no mark"},
      {pickle("a"), "its stack is empty"},
      {pickle("NNa"), "there is none"},
      {pickle("N(Ne"), "there is none"},
      {pickle("NNNs"), "there is none"},
      {pickle("}(Nu"), "a key without a value"},
      {pickle("h\x07"), "its memo has no 7"},
      {pickle("j\xff\xff\xff\xff"), "its memo has no 4294967295"},
      {pickle("X\xff\xff\xff\xff"
              "abc"),
       "4294967295 bytes are announced"},
      {pickle("\x8d\xff\xff\xff\xff\xff\xff\xff\xff"
              "abc"),
       "18446744073709551615 bytes are announced"},
      {pickle("X\x02\x00\x00\x00\xc3("s), "not UTF-8"},
      {pickle("\x8a\x09"
              "123456789"),
       "an integer of over 64 bits"},
      {pickle("\x8b\xff\xff\xff\xff"), "bytes are announced"},
      {pickle("ctorch"), "a name does not end"},
      {pickle("K\x01K\x02\x93"), "a name is expected"},
  };
  for (const auto& [bytes, reason] : cases) expect_refused(bytes, reason);
}

TEST(Pickle, Utf8) {
  for (const auto* good :
       {"", "a", "\xc2\x80", "\xdf\xbf", "\xe0\xa0\x80", "\xed\x9f\xbf", "\xf0\x90\x80\x80", "\xf4\x8f\xbf\xbf"}) {
    EXPECT_TRUE(is_utf8(good)) << good;
  }
  for (const auto* bad : {"\x80", "\xc1\xbf", "\xc2",
                          "\xc2"
                          "a",
                          "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf", "\xf4\x90\x80\x80", "\xf5\x80\x80\x80",
                          "\xe2\x82", "\xff"}) {
    EXPECT_FALSE(is_utf8(bad)) << bad;
  }
}

}  // namespace
}  // namespace yoke::train
