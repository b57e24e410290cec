// Tests the parts of `yoke infer`: readers, models, and the choice of a batch size. tests/infer has the command.
#include <ATen/ops/allclose.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/rand.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "tests/support/command.h"
#include "tests/support/message_of.h"
#include "tests/support/paths.h"
#include "yoke/base/error.h"
#include "yoke/base/file.h"
#include "yoke/infer/batch_size.h"
#include "yoke/infer/model.h"
#include "yoke/infer/request.h"
#include "yoke/infer/source.h"
#include "yoke/models/bert.h"
#include "yoke/models/pretrained.h"
#include "yoke/train/data/loader.h"
#include "yoke/train/format/pt_file.h"
#include "yoke/train/format/safetensors.h"

namespace yoke::infer {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> names_of(const train::NamedTensors& tensors) {
  std::vector<std::string> names;
  for (const auto& [name, _] : tensors) names.push_back(name);
  return names;
}

class Files : public ::testing::Test {
 protected:
  std::filesystem::path path(const std::string& name) const { return folder_.path(name); }

  /// A file of numpy.save with this head.
  std::filesystem::path write_npy(const std::string& head, const std::string& data) const {
    auto text = std::string("\x93NUMPY\x01\x00", 8);
    const auto length = (10 + head.size() + 64) / 64 * 64 - 10;
    text += {static_cast<char>(length & 0xff), static_cast<char>(length >> 8)};
    text += head + std::string(length - head.size() - 1, ' ') + '\n' + data;
    folder_.write("x.npy", text);
    return path("x.npy");
  }
  template <class Value>
  static std::string bytes_of(const std::vector<Value>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(Value)};
  }
  /// All batches of a reader, with bad samples left out.
  static std::vector<Inputs> batches_of(std::shared_ptr<const Reader> reader, int64_t batch_size,
                                        std::vector<train::BadSample>* bad = nullptr) {
    train::Loader<Source<true>> loader(Source<true>(reader), {.batch_size = batch_size, .max_bad_samples = 100});
    loader.in_order({});
    std::vector<Inputs> batches;
    while (auto batch = loader.next()) batches.push_back(*batch);
    if (bad != nullptr) *bad = loader.bad_samples();
    return batches;
  }
  std::filesystem::path save(const std::string& code, const std::string& name = "m.pt") const {
    torch::jit::Module module("m");
    module.register_parameter("w", at::arange(6, at::kFloat).view({3, 2}), false);
    module.define(code);
    module.save(path(name).string());
    return path(name);
  }
  test::TemporaryFolder folder_;
};

TEST(InferRequest, ReadsWordsAndRefusesOthers) {
  const auto request = request_of({"--model=a=b.pt", "--input=x", "--out=y.npy", "--batch-size=8", "--precision=bf16",
                                   "--token-dtype=uint32", "--resume", "--top=3"});
  EXPECT_EQ(request.model, "a=b.pt");
  EXPECT_EQ(request.batch_size, 8);
  EXPECT_EQ(request.precision, "bf16");
  EXPECT_TRUE(request.has_wide_tokens && request.resume && !request.json);
  EXPECT_EQ(request.top, 3);
  EXPECT_EQ(request_of({"--precision=fp32"}).precision, "");
  EXPECT_EQ(request_of({"--model=runs/images/"}).model, "runs/images");
  EXPECT_THAT(test::message_of([] { request_of({"--nonsense=1"}); }, ErrorCode::kInvalidArgument),
              HasSubstr("--nonsense=1 is unknown"));
}

TEST_F(Files, OfNumPyAreArraysWhoseRowsAreSamples) {
  const auto reader = open_npy(write_npy("{'descr': '<u2', 'fortran_order': False, 'shape': (3, 2), }",
                                         bytes_of<uint16_t>({1, 2, 3, 4, 5, 65535})));
  EXPECT_EQ(reader->describe(), "input [3, 2] UInt16");
  const auto batches = batches_of(reader, 2);
  ASSERT_EQ(batches.size(), 2u);
  EXPECT_EQ(batches[1][0].first, "input");
  EXPECT_TRUE(at::equal(batches[1][0].second, at::tensor({5, 65535}, at::kLong).view({1, 2})));

  const auto flat =
      open_npy(write_npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }", bytes_of<double>({0.5, -1})));
  EXPECT_TRUE(at::equal(batches_of(flat, 8)[0][0].second, at::tensor({0.5, -1.0}, at::kDouble)));
}

TEST_F(Files, OfNumPyThatAreRefusedSayWhy) {
  const auto refusal = [&](const std::string& head, ErrorCode code = ErrorCode::kDataLoss) {
    return test::message_of([&] { open_npy(write_npy(head, std::string(64, '\0'))); }, code);
  };
  EXPECT_THAT(refusal("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 2), }"), HasSubstr("np.ascontiguousarray"));
  EXPECT_THAT(refusal("{'descr': '<f4', 'fortran_order': False, 'shape': (), }"), HasSubstr("is one number"));
  EXPECT_THAT(refusal("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,), }"), HasSubstr("has fields"));
  EXPECT_THAT(refusal("{'descr': '<f4', 'fortran_order': False, 'shape': (-2,), }"), HasSubstr("a damaged head"));
  EXPECT_THAT(refusal("{'descr': '<f4', 'fortran_order': False, 'shape': (1000,), }"), HasSubstr("x.npy"));
  EXPECT_THAT(refusal("{'descr': '>f4', 'fortran_order': False, 'shape': (2,), }", ErrorCode::kInvalidArgument),
              HasSubstr("has the dtype >f4"));
  folder_.write("x.npy", "PK");
  EXPECT_THAT(test::message_of([&] { open_npy(path("x.npy")); }, ErrorCode::kDataLoss),
              HasSubstr("is not a file of numpy.save"));
}

TEST_F(Files, OfSafetensorsHaveTheirNames) {
  train::write_safetensors(path("x.safetensors"),
                           train::TensorMap{{"a", at::arange(3)}, {"b", at::arange(6).view({3, 2})}});
  const auto batches = batches_of(open_arrays(path("x.safetensors")), 2);
  EXPECT_THAT(names_of(batches[0]), ElementsAre("a", "b"));
  EXPECT_TRUE(at::equal(batches[1][1].second, at::tensor({4, 5}, at::kLong).view({1, 2})));
  train::write_safetensors(path("x.safetensors"), train::TensorMap{{"a", at::arange(3)}, {"b", at::arange(4)}});
  EXPECT_THAT(test::message_of([&] { open_arrays(path("x.safetensors")); }, ErrorCode::kInvalidArgument),
              HasSubstr("'b' has the shape [4], and 'a' [3]"));
}

TEST_F(Files, OfTextBecomeTokensWithAMaskAndBadLinesAreNamed) {
  const std::shared_ptr<const models::Tokenizer> bytes = models::read_tokenizer("bytes");
  folder_.write("lines.txt", "abc\r\n\nabcdefgh\n" + std::string((1 << 20) + 1, 'x') + "\nz");
  std::vector<train::BadSample> bad;
  const auto reader = open_text(path("lines.txt"), {.tokenizer = bytes, .max_length = 5, .min_tokens = 1});
  const auto batches = batches_of(reader, 8, &bad);
  ASSERT_EQ(batches.size(), 1u);
  EXPECT_THAT(names_of(batches[0]), ElementsAre("input_ids", "attention_mask"));
  EXPECT_TRUE(at::equal(batches[0][0].second,
                        at::tensor({97, 98, 99, 0, 0, 97, 98, 99, 100, 101, 122, 0, 0, 0, 0}, at::kLong).view({3, 5})));
  EXPECT_TRUE(at::equal(batches[0][1].second.sum(1), at::tensor({3, 5, 1}, at::kLong)));
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_EQ(bad[0].sample, 1);
  EXPECT_THAT(bad[0].error, HasSubstr("the line has 0 tokens, and the model needs 1"));
  EXPECT_EQ(bad[1].sample, 3);
  EXPECT_THAT(bad[1].error, HasSubstr("the longest may have 1.0 MiB"));
}

TEST_F(Files, OfTokensAreSequences) {
  folder_.write("t.bin", bytes_of<uint16_t>({1, 2, 3, 4, 5, 6, 7}));
  const auto batches = batches_of(open_tokens(path("t.bin"), {.length = 3}), 8);
  EXPECT_TRUE(at::equal(batches[0][0].second, at::tensor({1, 2, 3, 4, 5, 6}, at::kLong).view({2, 3})));
  folder_.write("t.bin", bytes_of<uint32_t>({1, 70'000, 3, 4}));
  const auto wide = batches_of(open_tokens(path("t.bin"), {.length = 3, .is_wide = true}), 8);
  EXPECT_TRUE(at::equal(wide[0][0].second, at::tensor({1, 70'000, 3}, at::kLong).view({1, 3})));
}

TEST_F(Files, OfImagesAreFoundInAllFoldersAndDamagedOnesAreNamed) {
  const auto image = read_file(test::reference("images/grey.jpg"));
  for (const auto* name : {"photos/b/2.JPG", "photos/a.jpeg", "photos/b/.hidden.jpg", "photos/notes.txt"}) {
    folder_.write(name, image);
  }
  folder_.write("photos/b/1.png", "no image");
  const train::ImageTransform transform{.height = 4, .width = 4, .shorter_side = 4};
  const auto reader = open_images(path("photos"), transform);
  ASSERT_EQ(reader->size(), 3);
  EXPECT_EQ(reader->name(0), "a.jpeg");
  EXPECT_EQ(reader->name(1), "b/1.png");
  EXPECT_EQ(reader->name(2), "b/2.JPG");
  EXPECT_THAT(reader->left_out(), ElementsAre("notes.txt"));
  std::vector<train::BadSample> bad;
  const auto batches = batches_of(reader, 8, &bad);
  EXPECT_THAT(batches[0][0].second.sizes(), ElementsAre(2, 3, 4, 4));
  ASSERT_EQ(bad.size(), 1u);
  EXPECT_EQ(bad[0].name, "b/1.png");
  const auto alone = open_images(path("photos/a.jpeg"), transform);
  EXPECT_TRUE(at::equal(batches_of(alone, 1)[0][0].second, batches[0][0].second.slice(0, 0, 1)));
  folder_.write("empty/x.txt", "");
  EXPECT_THAT(test::message_of([&] { open_images(path("empty"), transform); }, ErrorCode::kInvalidArgument),
              HasSubstr("has no image (.jpg, .jpeg, .png) and no tar shard"));
}

TEST_F(Files, OfImagesAreDecodedWholeWhateverTheModelSays) {
  const auto bytes = read_file(test::reference("images/444.jpg"));
  const auto decoded = [&](bool shrinks) {
    const train::ImageTransform transform{.height = 8,
                                          .width = 8,
                                          .shorter_side = 9,
                                          .normalization = normalization_of("none"),
                                          .shrink_on_decode = shrinks};
    train::SampleRandom random(1, 0, 0);
    const auto batch = at::empty({1, 3, 8, 8});
    train::ImageDecoder(transform).decode(std::as_bytes(std::span(bytes)), "444.jpg", random, batch, 0);
    return batch;
  };
  ASSERT_FALSE(at::equal(decoded(true), decoded(false))) << "the image is too small";
  Request request;
  request.input = test::reference("images/444.jpg");
  request.size = 8;
  request.normalize = "none";
  for (const auto& model : {Model{}, Model{.images = train::ImageTransform{}}}) {
    EXPECT_TRUE(at::equal(batches_of(open_reader(request, model), 1)[0][0].second, decoded(false)));
  }
}

TEST_F(Files, OfTarShardsHaveOneImageForEachKey) {
  const auto image = read_file(test::reference("images/grey.jpg"));
  std::string shard;
  for (const std::string name : {"a.jpg", "a.png", "b.v1.jpg", "b.v2.jpg", "c.jpg", "c.txt"}) {
    std::string head(512, '\0');
    const auto put = [&](size_t place, const std::string& text) { head.replace(place, text.size(), text); };
    put(0, name);
    put(100, "0000644");
    put(124, fmt::format("{:011o}", image.size()));
    put(148, std::string(8, ' '));
    put(156, "0");
    put(257, std::string("ustar\00000", 8));
    int sum = 0;
    for (const char c : head) sum += static_cast<unsigned char>(c);
    put(148, fmt::format("{:06o}", sum) + '\0');
    shard += head + image + std::string((512 - image.size() % 512) % 512, '\0');
  }
  folder_.write("x.tar", shard + std::string(1024, '\0'));
  std::vector<train::BadSample> bad;
  const auto batches = batches_of(open_images(path("x.tar"), {.height = 4, .width = 4, .shorter_side = 4}), 8, &bad);
  EXPECT_EQ(batches.at(0)[0].second.size(0), 1);
  ASSERT_EQ(bad.size(), 2u);
  EXPECT_THAT(bad[0].error, HasSubstr("a has 2 images, such as a.jpg and a.png, and a sample has one: the key"));
  EXPECT_THAT(bad[1].error, HasSubstr("b.v1.jpg and b.v2.jpg"));
}

TEST(InferImages, AreNormalisedAsTheTextSays) {
  EXPECT_THAT(normalization_of("imagenet").mean, ElementsAre(0.485, 0.456, 0.406));
  EXPECT_THAT(normalization_of("none").stddev, ElementsAre(1.0));
  EXPECT_THAT(normalization_of("0.5/0.25").mean, ElementsAre(0.5));
  EXPECT_THAT(normalization_of("0.1,0.2,0.3/1,2,3").stddev, ElementsAre(1, 2, 3));
  for (const auto* text : {"", "imagenot", "0.5", "0.5/0", "0.5/0.1,0.2", "1,2/1,2", "a/b", "/"}) {
    EXPECT_THROW(normalization_of(text), Error) << text;
  }
}

TEST_F(Files, WithTheInputChooseTheReader) {
  const auto refusal = [&](const std::string& input, const Model& model) {
    Request request;
    request.input = path(input);
    return test::message_of([&] { open_reader(request, model); }, ErrorCode::kInvalidArgument);
  };
  folder_.write("a.txt", "one\n");
  EXPECT_THAT(refusal("a.txt", {}), HasSubstr("the model comes without a tokenizer: give --tokenizer FOLDER"));
  for (const auto* name : {"a.webp", "a.npz", "a.pt", "a.tgz"}) {
    folder_.write(name, std::string("\x1f\x8b\x08\x00", 4));
    EXPECT_THAT(refusal(name, {}), HasSubstr(std::string(name) + " is not text, because it has bytes of zero; inputs "
                                                                 "are .npy, .safetensors, .jpg"));
  }
  folder_.write("a.csv", "text\none\n");
  EXPECT_THAT(refusal("a.csv", {.tokenizer = models::read_tokenizer("bytes")}), HasSubstr("a.csv is a table"));
  folder_.write("empty.txt", "");
  EXPECT_THAT(refusal("empty.txt", {.tokenizer = models::read_tokenizer("bytes")}), HasSubstr("has no samples"));
  Request request;
  request.input = path("a.txt");
  request.tokenizer = "bytes";
  EXPECT_EQ(open_reader(request, {})->describe(), "1 line");
  request.max_length = 9;
  EXPECT_THAT(test::message_of([&] { open_reader(request, {.max_length = 8}); }, ErrorCode::kInvalidArgument),
              HasSubstr("--max-length 9 is more than the 8 tokens that the model takes"));
  request.input = path("nothing.npy");
  EXPECT_THAT(test::message_of([&] { open_reader(request, {}); }, ErrorCode::kNotFound), HasSubstr("nothing.npy"));
}

TEST_F(Files, OfModelsAreRecognisedByTheirContent) {
  EXPECT_EQ(kind_of(save("def forward(self, x):\n  return x\n", "any.name")), ModelKind::kTorchScript);
  EXPECT_EQ(kind_of(test::reference("transformers/gpt2")), ModelKind::kGpt);
  EXPECT_EQ(kind_of(test::reference("transformers/bert")), ModelKind::kBert);
  folder_.write("m.onnx", "\x08\x07 onnx");
  EXPECT_THAT(test::message_of([&] { kind_of(path("m.onnx")); }, ErrorCode::kInvalidArgument),
              HasSubstr("a model is TorchScript (torch.jit.save), a package of AOTInductor"));
  train::write_pt(path("w.pt"), train::to_pt(train::TensorMap{{"w", at::arange(3)}}));
  train::write_safetensors(path("w.safetensors"), train::TensorMap{{"w", at::arange(3)}});
  for (const auto* weights : {"w.pt", "w.safetensors"}) {
    EXPECT_THAT(test::message_of([&] { kind_of(path(weights)); }, ErrorCode::kFailedPrecondition),
                HasSubstr("has weights without a network; save both in Python: torch.jit.trace("));
  }
  folder_.write("damaged.pt", "PK\x03\x04 and no more");
  EXPECT_THAT(test::message_of([&] { kind_of(path("damaged.pt")); }, ErrorCode::kDataLoss),
              HasSubstr("is a damaged archive"));
  EXPECT_THAT(test::message_of([&] { kind_of(path("nowhere")); }, ErrorCode::kNotFound), HasSubstr("nowhere"));
  EXPECT_THAT(test::message_of([&] { kind_of(folder_.path()); }, ErrorCode::kInvalidArgument),
              HasSubstr("without config.json and without checkpoints"));
}

TEST_F(Files, OfAClassifierGiveANumberForEachLabel) {
  const std::filesystem::path folder = test::reference("transformers/bert-classifier");
  const auto batch = train::read_safetensors(folder / "expected.safetensors").tensors;
  const auto outputs =
      open_bert(folder, at::kCPU)
          .run({{"input_ids", batch.at("tokens")}, {"attention_mask", batch.at("mask").to(at::kLong)}});
  models::BertClassifier network(models::read_bert_classifier_options(folder / "config.json"));
  models::load_bert_classifier(folder, *network);
  network->eval();
  ASSERT_EQ(outputs.size(), 1u);
  EXPECT_EQ(outputs[0].first, "output");
  EXPECT_EQ(outputs[0].second.size(1), 3);
  EXPECT_TRUE(at::equal(outputs[0].second, network(batch.at("tokens"), batch.at("mask"))));

  // Weights of another head, or of none, are not taken for a classifier's.
  auto weights = train::read_safetensors(folder / "model.safetensors").tensors;
  weights.erase("classifier.weight");
  train::write_safetensors(path("model.safetensors"), weights);
  std::filesystem::copy_file(folder / "config.json", path("config.json"));
  EXPECT_THAT(test::message_of([&] { open_bert(folder_.path(), at::kCPU); }, ErrorCode::kDataLoss),
              HasSubstr("the weights lack the layer classifier, which classifying needs"));
}

TEST_F(Files, OfSentenceTransformersArePooledAsTheySay) {
  const std::filesystem::path folder = test::reference("transformers/bert");
  const auto batch = train::read_safetensors(folder / "expected.safetensors").tensors;
  for (const auto* name : {"config.json", "model.safetensors"}) std::filesystem::copy_file(folder / name, path(name));
  std::filesystem::create_directory(path("1_Pooling"));
  std::ofstream(path("1_Pooling/config.json"))
      << R"({"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false})";
  std::ofstream(path("modules.json")) << R"([{"path": "", "type": "sentence_transformers.models.Transformer"},
      {"path": "1_Pooling", "type": "sentence_transformers.models.Pooling"}])";
  const auto mask = batch.at("mask").to(at::kLong);
  const auto outputs =
      open_bert(folder_.path(), at::kCPU).run({{"input_ids", batch.at("tokens")}, {"attention_mask", mask}});
  models::Bert network(models::read_bert_options(folder / "config.json"));
  models::load_bert(folder, *network);
  const auto first = network(batch.at("tokens"), batch.at("mask")).select(1, 0);
  EXPECT_TRUE(at::allclose(outputs[0].second, first, 1e-4, 1e-5));
}

TEST_F(Files, OfTorchScriptRunWithAnyOutputs) {
  const auto x = at::rand({4, 3});
  const auto outputs_of = [&](const std::string& code, const Inputs& inputs) {
    return open_torchscript(save(code), at::kCPU).run(inputs);
  };
  const auto one = outputs_of("def forward(self, x):\n  return torch.mm(x, self.w)\n", {{"input", x}});
  EXPECT_THAT(names_of(one), ElementsAre("output"));
  EXPECT_TRUE(at::equal(one[0].second, x.mm(at::arange(6, at::kFloat).view({3, 2}))));
  // NumPy's arrays are float64 unless one says otherwise.
  EXPECT_EQ(outputs_of("def forward(self, x):\n  return torch.mm(x, self.w)\n", {{"input", x.to(at::kDouble)}})[0]
                .second.scalar_type(),
            at::kFloat);
  EXPECT_THAT(names_of(outputs_of("def forward(self, x):\n  return {'a': x, 'b': x}\n", {{"input", x}})),
              ElementsAre("a", "b"));
  EXPECT_THAT(names_of(outputs_of("def forward(self, x):\n  return x, [x, x]\n", {{"input", x}})),
              ElementsAre("output.0", "output.1.0", "output.1.1"));
  EXPECT_THROW(outputs_of("def forward(self, x):\n  return 3\n", {{"input", x}}), Error);
}

TEST_F(Files, OfTorchScriptGetTheirArgumentsByName) {
  const auto a = at::rand({2, 1}), b = at::rand({2, 1});
  const auto run = [&](const std::string& code, const Inputs& inputs) {
    return open_torchscript(save(code), at::kCPU).run(inputs)[0].second;
  };
  const std::string difference = "def forward(self, b, a):\n  return b - a\n";
  EXPECT_TRUE(at::equal(run(difference, {{"a", a}, {"b", b}}), b - a));
  EXPECT_THAT(test::message_of(
                  [&] {
                    run(difference, {{"c", a}, {"d", b}});
                  },
                  ErrorCode::kInvalidArgument),
              HasSubstr("the input has the tensors c, d, and the model's first arguments are b, a"));
  // A text has a mask, which not every model takes.
  const Inputs text = {{"input_ids", a}, {"attention_mask", b}};
  EXPECT_TRUE(at::equal(run("def forward(self, x):\n  return x\n", text), a));
  EXPECT_TRUE(at::equal(run("def forward(self, tokens, mask):\n  return tokens * mask\n", text), a * b));
  EXPECT_TRUE(at::equal(run("def forward(self, attention_mask, input_ids):\n  return attention_mask\n", text), b));
}

TEST_F(Files, OfTorchScriptFailWithTheReasonAlone) {
  const auto model = open_torchscript(save("def forward(self, x):\n  return torch.mm(x, self.w)\n"), at::kCPU);
  try {
    model.run({{"input", at::rand({4, 5})}});
    FAIL() << "the shapes do not fit";
  } catch (const std::exception& error) {
    EXPECT_THAT(reason_of(error), testing::EndsWith("mat1 and mat2 shapes cannot be multiplied (4x5 and 3x2)"));
    EXPECT_LT(reason_of(error).size(), 70u) << "no lines of Python";
  }
}

// Oracle: each text alone, without padding.
TEST(InferText, LossesOfPaddedTextsAreThoseOfEachAlone) {
  at::manual_seed(1);
  models::Gpt gpt(
      models::GptOptions{.vocabulary_size = 11, .max_length = 8, .width = 8, .num_layers = 1, .num_heads = 2});
  gpt->eval();
  const at::NoGradGuard no_grad;
  const auto [tokens, mask] = models::pad_tokens({{1, 2, 3, 4, 5}, {6, 7}});
  const auto losses = model_of_gpt(gpt).run({{"input_ids", tokens}, {"attention_mask", mask.to(at::kLong)}})[0].second;
  const auto alone = [&](const at::Tensor& row) {
    const auto logits = gpt(row.unsqueeze(0));
    return at::cross_entropy_loss(logits[0].slice(0, 0, -1), row.slice(0, 1));
  };
  EXPECT_TRUE(at::allclose(losses[0], alone(tokens[0])));
  EXPECT_TRUE(at::allclose(losses[1], alone(tokens[1].slice(0, 0, 2))));
}

TEST(InferImages, AsBytesAreNormalisedForNetworksOfRecipes) {
  const train::ImageTransform transform{.normalization = train::Normalization{{0.5, 0.25, 0}, {1, 2, 4}}};
  const auto model = model_of_images([](const at::Tensor& x) { return x; }, transform);
  const auto bytes = at::full({1, 3, 1, 1}, 255, at::kByte);
  EXPECT_TRUE(at::equal(model.run({{"images", bytes}})[0].second.flatten(), at::tensor({0.5F, 0.375F, 0.25F})));
  const auto numbers = at::rand({1, 3, 1, 1});
  EXPECT_TRUE(at::equal(model.run({{"images", numbers}})[0].second, numbers));
}

TEST(InferBatchSize, GrowsWhileThatPays) {
  const auto sizes_tried = [](const std::function<std::optional<double>(int64_t)>& seconds, int64_t most) {
    std::vector<BatchTrial> trials;
    std::vector<int64_t> sizes;
    while (const auto size = next_batch_size(trials, {.most = most})) {
      sizes.push_back(*size);
      trials.push_back({*size, seconds(*size)});
    }
    sizes.push_back(-best_batch_size(trials));  // the choice
    return sizes;
  };
  // A call takes 1 ms, and a sample 1 ms above the first eight.
  const auto until_eight = [](int64_t size) { return std::max(1.0, static_cast<double>(size) / 8) * 1e-3; };
  EXPECT_THAT(sizes_tried(until_eight, 256), ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, -8));
  EXPECT_THAT(sizes_tried(until_eight, 5), ElementsAre(1, 2, 4, -4));
  EXPECT_THAT(sizes_tried(until_eight, 1), ElementsAre(1, -1));
  EXPECT_THAT(sizes_tried([](int64_t size) { return static_cast<double>(size); }, 256), ElementsAre(1, -1))
      << "over half a second";
  EXPECT_THAT(sizes_tried([](int64_t) { return 1e-3; }, 256), ElementsAre(1, 2, 4, 8, 16, 32, 64, 128, 256, -256));
  const auto until_memory_ends = [](int64_t size) { return size < 16 ? std::optional(1e-3) : std::nullopt; };
  EXPECT_THAT(sizes_tried(until_memory_ends, 256), ElementsAre(1, 2, 4, 8, 16, -8));
}

TEST(InferBatchSize, OfCompiledCodeIsInItsError) {
  EXPECT_EQ(compiled_batch_size("Error: input_handles[0]: unmatched dim value at 0, expected: 8, but got: 1, "), 8);
  EXPECT_EQ(compiled_batch_size("Error: input_handles[0]: unmatched dim value at 1, expected: 8, but got: 1, "),
            std::nullopt);
  EXPECT_EQ(compiled_batch_size("input_handles[0]: dim value is too large at 0, expected to be <= 15, but got: 16"),
            15);
}

}  // namespace
}  // namespace yoke::infer
