#include "yoke/container/build.h"

#include <algorithm>

#include "yoke/base/error.h"
#include "yoke/base/text.h"
#include "yoke/container/image.h"

namespace yoke::container {
namespace {

bool is_lower_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); }

bool is_tag(std::string_view tag) {
  constexpr size_t kMaxTag = 128;
  return !tag.empty() && tag.size() <= kMaxTag && tag.front() != '.' && tag.front() != '-' &&
         std::ranges::all_of(tag, [](char c) {
           return is_lower_or_digit(c) || (c >= 'A' && c <= 'Z') || c == '.' || c == '_' || c == '-';
         });
}

}  // namespace

std::string built_image_name(const SiteRules& rules, std::string_view user, const std::string& chosen) {
  const auto at = tag_of(chosen);
  const auto base = chosen.substr(0, at);
  const auto tag = at == chosen.npos ? "" : chosen.substr(at);
  const auto owner = lower_case(name_part(user));
  if (!is_image_name(base) || (!tag.empty() && (tag[0] != ':' || !is_tag(std::string_view(tag).substr(1))))) {
    throw Error(ErrorCode::kInvalidArgument,
                "{} is no name of an image: engines take lower-case letters and digits, with '.', '_' or '-' between "
                "them, and a tag after ':', such as {}:2",
                printable(chosen), named(rules.image_name, owner, "train"));
  }
  if (base.find('/') == base.npos || follows(rules.image_name, owner, base)) {
    return named(rules.image_name, owner, base) + tag;
  }
  throw Error(ErrorCode::kInvalidArgument, "{} breaks this site's rule for names of images, which is {}; call it {}",
              printable(chosen), rules.image_name, named(rules.image_name, owner, std::string(base_name(base))) + tag);
}

std::string image_name_of_folder(const std::filesystem::path& folder) {
  auto path = folder.lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  auto name = lower_case(name_part(path.filename().native()));
  while (!is_lower_or_digit(name.back())) name.pop_back();  // the first character is a letter or a digit
  return name;
}

bool needs_name(EngineKind engine, bool has_dockerfile, bool has_containerfile) {
  return engine == EngineKind::kDocker && !has_dockerfile && has_containerfile;
}

std::vector<std::string> plan_build(const Engine& engine, const BuildRequest& request) {
  std::vector<std::string> words;
  // Apptainer has no option for the folder: it copies files (%files) and finds base images from where it is started.
  const bool changes_folder = engine.kind == EngineKind::kApptainer && request.folder != ".";
  if (changes_folder) words = {"env", "--chdir", request.folder.native()};
  words.insert(words.end(), {engine.program, "build"});
  for (const auto& argument : request.arguments) words.insert(words.end(), {"--build-arg", argument});
  if (engine.kind != EngineKind::kApptainer) {
    words.insert(words.end(), {"--tag", request.name});
    if (request.recipe) words.insert(words.end(), {"--file", request.recipe->native()});
    words.push_back(request.folder.native());
    return words;
  }
  if (!request.recipe) {
    throw Error(ErrorCode::kInvalidArgument,
                "apptainer builds from a definition file; name it by -f, as in -f train.def");
  }
  const auto path = [&](const std::filesystem::path& given) {
    return changes_folder ? std::filesystem::absolute(given).native() : given.native();
  };
  words.insert(words.end(), {path(request.name), path(*request.recipe)});
  return words;
}

}  // namespace yoke::container
