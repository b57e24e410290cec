#include "yoke/container/detail/yaml.h"

#include <yaml.h>

#include <memory>
#include <string>

#include "yoke/base/error.h"

namespace yoke::container {
namespace {

/// The nodes of a document as JSON. An alias may refer to a node that contains it, so depth and number are limited.
class YamlNodes {
 public:
  explicit YamlNodes(yaml_document_t& document) : document_(document) {}

  nlohmann::json json_of(const yaml_node_t* node, int depth) {
    constexpr int kMostDepth = 32;
    if (node == nullptr) return {};
    if (depth > kMostDepth || --num_left_ < 0) throw Error(ErrorCode::kDataLoss, "it is too large or too deep");
    if (node->type == YAML_SCALAR_NODE) return text_of(node);
    if (node->type == YAML_SEQUENCE_NODE) {
      auto result = nlohmann::json::array();
      const auto& items = node->data.sequence.items;
      for (const auto* item = items.start; item != items.top; ++item) result.push_back(json_of(at(*item), depth + 1));
      return result;
    }
    auto result = nlohmann::json::object();
    const auto& pairs = node->data.mapping.pairs;
    for (const auto* pair = pairs.start; pair != pairs.top; ++pair) {
      result[text_of(at(pair->key))] = json_of(at(pair->value), depth + 1);
    }
    return result;
  }

 private:
  const yaml_node_t* at(int index) const { return yaml_document_get_node(&document_, index); }

  static std::string text_of(const yaml_node_t* node) {
    if (node->type != YAML_SCALAR_NODE) {
      throw Error(ErrorCode::kDataLoss, "line {}: a key must be a text", node->start_mark.line + 1);
    }
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): libyaml's bytes are unsigned
    return {reinterpret_cast<const char*>(node->data.scalar.value), node->data.scalar.length};
  }

  yaml_document_t& document_;
  int num_left_ = 100'000;
};

}  // namespace

nlohmann::json parse_yaml(std::string_view text) {
  yaml_parser_t parser;
  if (yaml_parser_initialize(&parser) == 0) throw Error(ErrorCode::kUnavailable, "there is no memory to read YAML");
  const std::unique_ptr<yaml_parser_t, decltype(&yaml_parser_delete)> parser_owner(&parser, yaml_parser_delete);
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): libyaml's bytes are unsigned
  yaml_parser_set_input_string(&parser, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  yaml_document_t document;
  if (yaml_parser_load(&parser, &document) == 0) {
    throw Error(ErrorCode::kDataLoss, "line {}: {}", parser.problem_mark.line + 1, parser.problem);
  }
  const std::unique_ptr<yaml_document_t, decltype(&yaml_document_delete)> document_owner(&document,
                                                                                         yaml_document_delete);
  return YamlNodes(document).json_of(yaml_document_get_root_node(&document), 0);
}

}  // namespace yoke::container
