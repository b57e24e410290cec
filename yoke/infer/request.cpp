#include "yoke/infer/request.h"

#include <functional>
#include <map>

#include "yoke/base/environment.h"
#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::infer {

Request request_of(const std::vector<std::string>& words) {
  Request request;
  std::map<std::string, std::function<void(const std::string&)>> takers;
  const auto add_text = [&](const char* name, auto& to) {
    takers[name] = [&to](const std::string& value) { to = value; };
  };
  const auto add_number = [&](const char* name, int64_t& to) {
    takers[name] = [&to](const std::string& value) { to = parse_int(value).value_or(to); };
  };
  const auto add_flag = [&](const char* name, bool& to) { takers[name] = [&to](const std::string&) { to = true; }; };
  add_text("--model", request.model);
  add_text("--input", request.input);
  add_text("--out", request.out);
  add_text("--recipe", request.recipe);
  add_number("--batch-size", request.batch_size);
  takers["--precision"] = [&](const std::string& value) { request.precision = value == "fp32" ? "" : value; };
  add_number("--size", request.size);
  add_text("--normalize", request.normalize);
  add_text("--tokenizer", request.tokenizer);
  add_number("--max-length", request.max_length);
  takers["--token-dtype"] = [&](const std::string& value) { request.has_wide_tokens = value == "uint32"; };
  add_number("--top", request.top);
  add_number("--workers", request.workers);
  add_flag("--resume", request.resume);
  add_flag("--json", request.json);
  add_text("--command", request.command);
  for (const auto& word : words) {
    const auto equals = word.find('=');
    const auto taker = takers.find(word.substr(0, equals));
    if (taker == takers.end()) {
      throw Error(ErrorCode::kInvalidArgument, "{} is unknown; `yoke infer` starts this program", printable(word));
    }
    taker->second(equals == word.npos ? "" : word.substr(equals + 1));
  }
  for (auto* path : {&request.model, &request.input}) {  // without a slash at the end
    if (!path->has_filename() && path->has_relative_path()) *path = path->parent_path();
  }
  return request;
}

}  // namespace yoke::infer
