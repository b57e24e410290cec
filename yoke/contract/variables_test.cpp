// Compares variables.h with the text of the product, of Python's copies, and of the documentation.
#include "yoke/contract/variables.h"

#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <set>
#include <string>
#include <string_view>

#include "yoke/base/file.h"
#include "yoke/base/text.h"

namespace yoke {
namespace {

namespace fs = std::filesystem;

const fs::path kRepository = YOKE_REPOSITORY;

/// The name of a variable at the beginning of `text`: capitals, digits and underscores.
std::string_view name_at(std::string_view text) {
  size_t size = 0;
  while (size < text.size() &&
         (std::isupper(static_cast<unsigned char>(text[size])) != 0 || is_digit(text[size]) || text[size] == '_')) {
    ++size;
  }
  return text.substr(0, size);
}

/// The names in `text` that begin with YOKE_ and follow `before`.
std::set<std::string> names_in(std::string_view text, const std::string& before = "") {
  std::set<std::string> names;
  const auto beginning = before + "YOKE_";
  for (auto at = text.find(beginning); at != text.npos; at = text.find(beginning, at + 1)) {
    const auto name = name_at(text.substr(at + before.size()));
    if (name != "YOKE_") names.emplace(name);
  }
  return names;
}

/// The names that are a whole literal in C++, or its beginning before "=" or "={}".
std::set<std::string> literals_in(std::string_view text) {
  std::set<std::string> names;
  for (const auto& name : names_in(text, "\"")) {
    for (const char* end : {"\"", "=\"", "={}\""}) {
      if (text.find('"' + name + end) != text.npos) names.insert(name);
    }
  }
  return names;
}

std::set<std::string> all_variables() { return literals_in(read_file(kRepository / "yoke/contract/variables.h")); }

TEST(Variables, AreNotSpelledOutElsewhere) {
  EXPECT_EQ(literals_in(R"(set("YOKE_A"); fmt("YOKE_B={}"); "YOKE_C=" + d; "YOKE_E names {}"; // YOKE_F)"),
            (std::set<std::string>{"YOKE_A", "YOKE_B", "YOKE_C"}));
  int num_files = 0;
  for (const auto* top : {"yoke", "tools", "recipes"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRepository / top)) {
      const auto& path = entry.path();
      const bool is_source = path.extension() == ".cpp" || path.extension() == ".h";
      if (!is_source || path.stem().string().ends_with("_test") || path.filename() == "variables.h") continue;
      ++num_files;
      const auto text = read_file(path);
      for (const auto line : lines_of(text)) {
        const auto code = line.substr(0, line.find("//"));
        EXPECT_EQ(literals_in(code), std::set<std::string>()) << path << ": use a constant of variables.h";
      }
    }
  }
  EXPECT_GT(num_files, 500);
}

TEST(Variables, HaveAMeaningEach) {
  std::string_view before;
  const auto text = read_file(kRepository / "yoke/contract/variables.h");
  for (const auto line : lines_of(text)) {
    if (line.find("= \"YOKE_") != line.npos) {
      EXPECT_TRUE(before.starts_with("///")) << line;
    }
    before = line;
  }
  EXPECT_EQ(all_variables().count(variable::kStepTimes), 1U);
}

TEST(Variables, OfPythonAreTheSame) {
  const auto known = all_variables();
  std::set<std::string> used;
  for (const auto* folder : {"tools/python", "python/yoke"}) {
    for (const auto& entry : fs::recursive_directory_iterator(kRepository / folder)) {
      if (entry.path().extension() == ".py") used.merge(names_in(read_file(entry.path())));
    }
  }
  for (const auto& name : used) EXPECT_TRUE(known.contains(name)) << name << " is not in variables.h";
  for (const auto* name :
       {variable::kProfile, variable::kStepTimes, variable::kLockStep, variable::kCommand, variable::kDevice}) {
    EXPECT_TRUE(used.contains(name)) << "Python does not read " << name;
  }
  // sitecustomize.py starts the module with the name of a variable in small letters.
  const auto observers = read_file(kRepository / "tools/python/sitecustomize.py");
  for (const auto* name : {variable::kProfile, variable::kStepTimes, variable::kLockStep}) {
    std::string module = name;
    for (char& c : module) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    EXPECT_NE(observers.find('"' + module + '"'), observers.npos) << module;
    EXPECT_TRUE(fs::exists(kRepository / "tools/python" / (module + ".py")));
  }
}

}  // namespace
}  // namespace yoke
