#include "yoke/slurm/job/planned_job.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_slurm.h"
#include "tests/support/message_of.h"
#include "yoke/base/error.h"

namespace yoke::slurm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(SlurmPlannedJob, LooksForTheProgramWhereItWouldRun) {
  const test::FakeSlurm slurm;
  slurm.write("r.py", "print(1)\n");
  slurm.write("plain", "x\n");
  const auto check = [&](const std::vector<std::string>& argv, const std::string& container = "") {
    return check_program_here({.argv = argv, .container = container}, slurm.environment());
  };
  EXPECT_THAT(check({"sh", "-c", "nothing.sh"}), IsEmpty());
  EXPECT_THAT(check({"python3", "r.py"}), IsEmpty());
  EXPECT_THAT(check({"./nothing"}, "image.sif"), IsEmpty()) << "it is in the image";
  EXPECT_THAT(check({"./{name}"}), IsEmpty()) << "its name is not known yet";
  EXPECT_THAT(check({"no-such-program"}), ElementsAre(HasSubstr("no-such-program is not in PATH here")));
  EXPECT_THAT(check({"/no/such.sh"}), ElementsAre(HasSubstr("there is no /no/such.sh here")));
  struct Row {
    std::vector<std::string> argv;
    ErrorCode code;
    const char* why;
  };
  const Row rows[] = {
      {{"r.py"}, ErrorCode::kInvalidArgument, "give python r.py"},
      {{"plain"}, ErrorCode::kInvalidArgument, "give ./plain"},
      {{"./r.py"}, ErrorCode::kInvalidArgument, "give python ./r.py, or make it executable"},
      {{"./nothing"}, ErrorCode::kNotFound, "there is no ./nothing in this folder"},
      {{"python3", "-u", "nothing.py"}, ErrorCode::kNotFound, "there is no nothing.py in this folder"},
  };
  for (const auto& row : rows) {
    EXPECT_THAT(test::message_of([&] { check(row.argv); }, row.code), HasSubstr(row.why)) << row.argv[0];
  }
}

TEST(SlurmPlannedJob, HasAScriptForTheSite) {
  const test::FakeSlurm slurm;
  auto environment = slurm.environment();
  environment.set("SBATCH_ACCOUNT", "project_9");
  const JobPlace place{.site = YOKE_SITES "/lumi-g.toml", .version = "23.11", .share = ""};
  const Request request{.argv = {"true"}, .time = "2h"};
  const auto job = plan_job(request, place, environment);
  EXPECT_EQ(job.site.site.name, "lumi-g");
  EXPECT_THAT(job.script,
              testing::AllOf(HasSubstr("#SBATCH --account=project_9\n"), HasSubstr("#SBATCH --time=2:00:00")));
  slurm.write("job.sh", "#!/bin/bash\n#SBATCH --nodes=2\nsrun hostname\n");
  const auto refusal = [&](Request wrong, JobPlace where) {
    if (wrong.argv.empty()) wrong.argv = {"true"};
    return test::message_of([&] { plan_job(wrong, where, environment); });
  };
  for (const auto& argv : {std::vector<std::string>{"./job.sh"}, {"bash", "job.sh"}, {"sh", "-e", "./job.sh"}}) {
    EXPECT_THAT(refusal({.argv = argv}, place), HasSubstr("is a batch script, with options for sbatch from line 2 on"));
  }
  EXPECT_THAT(refusal({.memory = "much"}, place), HasSubstr("--mem much: give a size"));
  EXPECT_THAT(refusal({.array = "x"}, place), HasSubstr("--array x: give numbers"));
  EXPECT_THAT(refusal({.argv = {"a\nb"}}, place), HasSubstr("has a line end"));
  EXPECT_THAT(refusal({}, {.site = place.site, .version = "new", .share = ""}), HasSubstr("--slurm new"));
}

TEST(SlurmPlannedJob, HasVariables) {
  EXPECT_EQ(parse_variable("A_1=b=c"), (std::pair<std::string, std::string>("A_1", "b=c")));
  for (const auto* text : {"A", "=b", "1A=b", "A B=c", "A=b\nc"}) EXPECT_THROW(parse_variable(text), Error) << text;
}

}  // namespace
}  // namespace yoke::slurm
