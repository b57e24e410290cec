#include "yoke/container/extend.h"

#include <fmt/format.h>

#include "yoke/base/error.h"
#include "yoke/base/text.h"

namespace yoke::container {
namespace {

constexpr const char* kRequirementsInside = "/opt/yoke/requirements.txt";
constexpr const char* kWheelsInside = "/opt/yoke/wheels";

/// Runs in the image: makes the environment in argv[1], and starts pip with the rest. If the image has pip, then the
/// environment uses that and needs none of its own. If the image's Python is itself in a virtual environment, then the
/// new one would only see the Python below that; so a .pth file adds the packages of the old one.
constexpr const char* kScript = R"py(import importlib.util, os, signal, subprocess, sys, sysconfig
signal.signal(signal.SIGTERM, signal.default_int_handler)  # as the first process of a container, it would ignore it
target, arguments = sys.argv[1], sys.argv[2:]
try:
    import venv
    has_pip = importlib.util.find_spec("pip") is not None
    venv.EnvBuilder(system_site_packages=True, symlinks=True, with_pip=not has_pip).create(target)
except Exception as error:
    sys.exit(f"the image's Python cannot make a virtual environment: {error}")
python = os.path.join(target, "bin", "python")
if sys.prefix != sys.base_prefix:
    question = "import sysconfig; print(sysconfig.get_path('purelib'))"
    folder = subprocess.run([python, "-c", question], check=True, stdout=subprocess.PIPE).stdout.decode().strip()
    with open(os.path.join(folder, "yoke-parent.pth"), "w") as file:
        for parent in dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))):
            file.write(f"import site; site.addsitedir({parent!r})\n")
try:
    sys.exit(subprocess.call([python, "-m", "pip", "install", *arguments]))
except KeyboardInterrupt:
    sys.exit(130)
)py";

/// What an administrator or a user has set for networks and package indices.
constexpr const char* kPassedOn[] = {"http_proxy",  "https_proxy", "no_proxy",      "HTTP_PROXY",
                                     "HTTPS_PROXY", "NO_PROXY",    "PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"};

/// A word of a Containerfile, in which '$' and '\' mean nothing.
std::string recipe_word(std::string_view text) {
  std::string result = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\' || c == '$') result += '\\';
    result += c;
  }
  return result + '"';
}

}  // namespace

Client plan_extension(const Engine& engine, const ExtendRequest& request, const Environment& environment) {
  HelperRequest helper{.image = request.image,
                       .program = {"python3", "-c", kScript, request.inside},
                       .mounts = {{request.folder, request.inside}, {request.temporary, "/tmp"}},
                       .variables = {{"PIP_NO_CACHE_DIR", "1"},
                                     {"PIP_NO_INPUT", "1"},
                                     {"PIP_DISABLE_PIP_VERSION_CHECK", "1"},
                                     {"PYTHONNOUSERSITE", "1"}},
                       .network = request.network,
                       .uid = request.uid,
                       .gid = request.gid};
  if (engine.kind != EngineKind::kApptainer) helper.variables.emplace_back("HOME", "/tmp");  // Apptainer refuses it
  if (request.wheels) {
    helper.mounts.push_back({*request.wheels, kWheelsInside, true});
    helper.program.insert(helper.program.end(), {"--no-index", "--find-links", kWheelsInside});
    helper.network = "none";
  } else {
    for (const auto* name : kPassedOn) {  // the address of an index or a proxy may have a password
      if (const auto value = environment.find(name)) helper.secrets.emplace_back(name, *value);
    }
  }
  if (request.requirements) {
    helper.mounts.push_back({*request.requirements, kRequirementsInside, true});
    helper.program.insert(helper.program.end(), {"--requirement", kRequirementsInside});
  }
  helper.program.insert(helper.program.end(), request.packages.begin(), request.packages.end());
  return plan_helper(engine, helper);
}

std::string containerfile_of(const std::string& image, const ImageFacts& facts, const std::string& inside) {
  if (image.find_first_of(" \t\r\n") != image.npos) {
    throw Error(ErrorCode::kInvalidArgument, "{} is no name of an image", printable(image));
  }
  std::string path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";  // what engines set without PATH
  for (const auto& variable : facts.variables) {
    if (variable.starts_with("PATH=")) path = variable.substr(5);
  }
  return fmt::format("FROM {}\nCOPY venv {}\nENV VIRTUAL_ENV={} PATH={}\n", image, inside, inside,
                     recipe_word(inside + "/bin:" + path));
}

}  // namespace yoke::container
