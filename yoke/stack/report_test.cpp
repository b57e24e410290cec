#include "yoke/stack/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace yoke::stack {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::SizeIs;
using testing::StartsWith;

TEST(StackReport, ReadsEuStack) {
  const auto threads = parse_eu_stack(
      "PID 19325 - process\n"
      "TID 19327:\n"
      "#0  0x00007f97226ed545 clock_nanosleep@GLIBC_2.2.5 - /usr/lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  0x000055a55aa401b8 ns::T<a - b>::operator()(int) const - /tmp/my - programs/hang\n"
      "#2  0x00007f97228d44a3 - /usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30\n"
      "eu-stack: dwfl_thread_getframes tid 19327 at 0x0 in <unknown>: No DWARF information found\n"
      "TID 19325:\n"
      "#0  0x00007f97226f1df2 pause\n");
  ASSERT_THAT(threads, SizeIs(2));
  EXPECT_EQ(threads[0].tid, 19325) << "the main thread first";
  EXPECT_THAT(threads[0].frames, ElementsAre(Frame{"pause", ""}));
  EXPECT_THAT(threads[1].frames, ElementsAre(Frame{"clock_nanosleep@GLIBC_2.2.5", "libc.so.6"},
                                             Frame{"ns::T<a - b>::operator()(int) const - /tmp/my", "hang"},
                                             Frame{"", "libstdc++.so.6.0.30"}));
  EXPECT_THAT(parse_eu_stack("eu-stack: dwfl_linux_proc_report pid 1: Permission denied\n#0 x\nTID"), IsEmpty());
}

TEST(StackReport, ReadsGdb) {
  const auto threads = parse_gdb(
      "[New LWP 19327]\n"
      "0x00007f97226f1df2 in __libc_pause () at ../sysdeps/unix/sysv/linux/pause.c:29\n"
      "\n"
      "Thread 2 (Thread 0x7f972261d6c0 (LWP 19327) \"hang\"):\n"
      "#0  0x00007f97226ed545 in __sleep (seconds=0, at=\" from \") at ../sysdeps/posix/sleep.c:55\n"
      "#4  std::__invoke_impl<void, main()::<lambda()> > (__f=...) at /usr/include/c++/12/bits/invoke.h:61\n"
      "#9  0x00007f97228d44a3 in ?? () from /lib/x86_64-linux-gnu/libstdc++.so.6\n"
      "\n"
      "Thread 1 (Thread 0x7f9722aaa440 (LWP 19325) \"hang\"):\n"
      "#1  0x000055a55aa401fd in wait_here () at hang.cpp:3\n"
      "#2  0x000055a55aa40246 in (anonymous namespace)::f () at hang.cpp:4\n"
      "[Inferior 1 (process 19325) detached]\n",
      19325);
  ASSERT_THAT(threads, SizeIs(2));
  EXPECT_EQ(threads[0].tid, 19325);
  EXPECT_THAT(threads[0].frames,
              ElementsAre(Frame{"wait_here", "hang.cpp:3"}, Frame{"(anonymous namespace)::f", "hang.cpp:4"}));
  EXPECT_THAT(threads[1].frames, ElementsAre(Frame{"__sleep", "sleep.c:55"},
                                             Frame{"std::__invoke_impl<void, main()::<lambda()> >", "invoke.h:61"},
                                             Frame{"", "libstdc++.so.6"}));
  const auto pstack = parse_gdb("#0  0x00007f97226f1df2 in pause () from /lib64/libc.so.6\n#1  0x0 in main ()\n", 7);
  ASSERT_THAT(pstack, SizeIs(1)) << "one thread has no heading";
  EXPECT_EQ(pstack[0].tid, 7);
  EXPECT_THAT(pstack[0].frames, ElementsAre(Frame{"pause", "libc.so.6"}, Frame{"main", ""}));
}

// gdb 13 and eu-stack 0.188 gave the first four of these names for the same process without debugging information, as
// libtorch is.
TEST(StackReport, TypesInANameAreNotGdbsArguments) {
  const auto function_of = [](const std::string& frame) {
    return parse_gdb("#1  0x00007f97228d44a3 in " + frame + " from /torch/lib/libtorch_cpu.so\n", 7).at(0).frames.at(0);
  };
  for (const char* function :
       {"void (anonymous namespace)::run<int>(int)",
        "std::_Function_handler<void (int), main::{lambda()#1}::operator()() const::{lambda(int)#1}>::_M_invoke("
        "std::_Any_data const&, int&&)",
        "call(std::function<void (int)>, void (*)(int))", "std::function<void (int)>::operator()(int) const",
        "operator< <char>(X const&)", "X::operator->()", "operator()(int) const", "clone3"}) {
    EXPECT_EQ(function_of(std::string(function) + " ()"), (Frame{function, "libtorch_cpu.so"}));
  }
  EXPECT_EQ(function_of("operator< (a=..., b=...)").function, "operator<");
  EXPECT_EQ(function_of("f<void (int)> (text=\" (\", x=(1, 2))").function, "f<void (int)>");
}

TEST(StackReport, ReadsPySpy) {
  EXPECT_THAT(parse_py_spy("Process 12: python train.py\nPython v3.11.2 (/usr/bin/python3.11)\n\n"
                           "Thread 12 (idle): \"MainThread\"\n    wait_here (train.py:3)\n\nThread 0x7F (active)\n"),
              ElementsAre("Thread 12 (idle): \"MainThread\"", "    wait_here (train.py:3)", "Thread 0x7F (active)"));
  EXPECT_THAT(parse_py_spy("Error: Failed to copy PyDictObject\nReason: Permission denied\n"), IsEmpty());
}

ThreadStack thread(int64_t tid, std::vector<std::string> functions) {
  ThreadStack result{.tid = tid, .name = "train", .state = 'S'};
  for (auto& function : functions) result.frames.push_back({std::move(function), ""});
  return result;
}

RankStack rank(int64_t number, std::vector<ThreadStack> threads) {
  const auto pid = threads[0].tid;
  return {.rank = number, .processes = {{.pid = pid, .command = "./train", .threads = std::move(threads)}}};
}

TEST(StackReport, RanksAtTheSamePlaceAreShownOnceAndTheOddOneLast) {
  const std::vector<RankStack> ranks = {rank(0, {thread(100, {"load"}), thread(101, {"idle"})}),
                                        rank(1, {thread(200, {"wait"}), thread(201, {"idle"}), thread(202, {"idle"})}),
                                        rank(2, {thread(300, {"wait"}), thread(301, {"idle"})}),
                                        rank(3, {thread(400, {"wait"}), thread(401, {"idle"})})};
  EXPECT_EQ(to_text(ranks),
            "ranks 1-3, alike (processes 200,300,400); of rank 1:\n"
            "  process 200: ./train\n"
            "    thread 200 (train): sleeping\n"
            "      #0  wait\n"
            "    2 threads 201-202 (train) in idle: sleeping\n"
            "\n"
            "rank 0:\n"
            "  process 100: ./train\n"
            "    thread 100 (train): sleeping\n"
            "      #0  load\n"
            "    thread 101 (train) in idle: sleeping\n");
  EXPECT_THAT(to_text(ranks, ShownThreads::kAll), HasSubstr("2 threads 201-202 (train): sleeping\n      #0  idle\n"));
}

/// Returns the threads of a rank with Gloo and OpenMP, as eu-stack shows them: one line for each frame.
std::vector<ThreadStack> gloo_rank(int64_t pid, const std::string& main, int num_openmp, int num_busy, bool in_epoll) {
  constexpr const char* kLoop =
      "#0  0x1 epoll_wait - /usr/lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  0x2 gloo::transport::tcp::Loop::run() - /torch/lib/libtorch_cpu.so\n"
      "#2  0x3 - /usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30\n"
      "#3  0x4 start_thread - /usr/lib/x86_64-linux-gnu/libc.so.6\n"
      "#4  0x5 __clone3 - /usr/lib/x86_64-linux-gnu/libc.so.6\n";
  constexpr const char* kInLoop =
      "#0  0x1 __libc_recvmsg - /usr/lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  0x6 gloo::transport::tcp::Pair::read() - /torch/lib/libtorch_cpu.so\n"
      "#2  0x2 gloo::transport::tcp::Loop::run() - /torch/lib/libtorch_cpu.so\n"
      "#3  0x3 - /usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30\n"
      "#4  0x4 start_thread - /usr/lib/x86_64-linux-gnu/libc.so.6\n";
  constexpr const char* kWorker =
      "#0  0x1 pthread_cond_wait@@GLIBC_2.3.2 - /usr/lib/x86_64-linux-gnu/libc.so.6\n"
      "#1  0x7 c10d::ProcessGroupGloo::runLoop(int) - /torch/lib/libtorch_cpu.so\n"
      "#2  0x3 - /usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30\n"
      "#3  0x4 start_thread - /usr/lib/x86_64-linux-gnu/libc.so.6\n";
  constexpr const char* kOpenMp =
      "#0  0x8 - /torch/lib/libgomp.so.1\n"
      "#1  0x4 start_thread - /usr/lib/x86_64-linux-gnu/libc.so.6\n";
  constexpr const char* kBusyOpenMp =
      "#0  0x9 at::native::add_kernel - /torch/lib/libtorch_cpu.so\n"
      "#1  0x8 - /torch/lib/libgomp.so.1\n"
      "#2  0x4 start_thread - /usr/lib/x86_64-linux-gnu/libc.so.6\n";
  auto tid = pid;
  const auto heading = [&tid] { return "TID " + std::to_string(tid++) + ":\n"; };
  auto text = heading() + "#0  0x1 " + main + " - /torch/lib/libtorch_cpu.so\n#1  0x2 main - /home/ada/train\n";
  for (const auto* thread : {in_epoll ? kLoop : kInLoop, kWorker, kWorker}) text += heading() + thread;
  for (int i = 0; i < num_openmp; ++i) text += heading() + (i < num_busy ? kBusyOpenMp : kOpenMp);
  auto threads = parse_eu_stack(text);
  for (auto& one : threads) {
    one.name = "train";
    one.state = 'S';
  }
  return threads;
}

/// One of four ranks sleeps, so the output must have two headings, not four.
TEST(StackReport, ThreadsBesideTheMainOneDoNotPartRanks) {
  const std::vector<RankStack> ranks = {
      rank(0, gloo_rank(100, "gloo::UnboundBuffer::waitRecv", 3, 0, true)),
      rank(1, gloo_rank(200, "gloo::UnboundBuffer::waitRecv", 1, 1, false)),
      rank(2, gloo_rank(300, "clock_nanosleep", 3, 2, true)),
      rank(3, gloo_rank(400, "gloo::UnboundBuffer::waitRecv", 0, 0, true)),
  };
  EXPECT_EQ(to_text(ranks),
            "ranks 0-1,3, alike (processes 100,200,400); of rank 0:\n"
            "  process 100: ./train\n"
            "    thread 100 (train): sleeping\n"
            "      #0  gloo::UnboundBuffer::waitRecv  libtorch_cpu.so\n"
            "      #1  main  train\n"
            "    2 threads 102-103 (train) in c10d::ProcessGroupGloo::runLoop(int): sleeping\n"
            "    thread 101 (train) in gloo::transport::tcp::Loop::run(): sleeping\n"
            "    3 threads 104-106 (train) in libgomp.so.1: sleeping\n"
            "\n"
            "rank 2:\n"
            "  process 300: ./train\n"
            "    thread 300 (train): sleeping\n"
            "      #0  clock_nanosleep  libtorch_cpu.so\n"
            "      #1  main  train\n"
            "    2 threads 302-303 (train) in c10d::ProcessGroupGloo::runLoop(int): sleeping\n"
            "    thread 301 (train) in gloo::transport::tcp::Loop::run(): sleeping\n"
            "    3 threads 304-306 (train) in libgomp.so.1: sleeping\n");
}

TEST(StackReport, AKindOfThreadsSaysHowManyDoWhat) {
  auto threads = gloo_rank(100, "main_loop", 3, 1, true);
  threads[4].state = 'R';
  for (const size_t i : {5, 6}) threads[i].syscall = "futex";
  EXPECT_THAT(to_text({rank(0, threads)}),
              HasSubstr("3 threads 104-106 (train) in libgomp.so.1: 1 running; 2 sleeping, system call futex\n"));
  std::vector<ThreadStack> bare = {{.tid = 1, .name = "a", .state = 'S', .syscall = "futex"},
                                   {.tid = 2, .name = "b", .state = 'R'}};
  EXPECT_THAT(to_text({rank(0, bare)}), HasSubstr("    thread 2 (b): running\n")) << "without a tool";
}

TEST(StackReport, PythonsOtherThreadsDoNotPartRanksEither) {
  auto first = rank(0, {thread(1, {"eval"})}), second = rank(1, {thread(2, {"eval"})});
  first.processes[0].python = {"Thread 9 (idle): \"pin_memory\"", "    wait (threading.py:320)", "    run (a.py:1)",
                               "Thread 1 (idle): \"MainThread\"", "    all_reduce (a.py:3)"};
  second.processes[0].python = {"Thread 2 (active): \"MainThread\"", "    all_reduce (a.py:3)"};
  EXPECT_EQ(place_of(first), place_of(second));
  EXPECT_THAT(to_text({first, second}), HasSubstr("    Python\n"
                                                  "      Thread 1 (idle): \"MainThread\"\n"
                                                  "          all_reduce (a.py:3)\n"
                                                  "      thread \"pin_memory\": wait (threading.py:320)\n"
                                                  "    thread 1 (train)"));
  EXPECT_THAT(to_text({first}, ShownThreads::kAll), HasSubstr("          run (a.py:1)\n"));
}

TEST(StackReport, APlaceIsPythonsToo) {
  auto first = rank(0, {thread(1, {"eval"})}), second = rank(1, {thread(2, {"eval"})});
  first.processes[0].python = {"Thread 1 (idle): \"MainThread\"", "    f (a.py:3)"};
  second.processes[0].python = {"Thread 2 (active): \"MainThread\"", "    f (a.py:3)"};
  EXPECT_EQ(place_of(first), place_of(second));
  second.processes[0].python[1] = "    g (a.py:9)";
  EXPECT_NE(place_of(first), place_of(second));
  EXPECT_NE(place_of({.rank = 0, .note = "exited with code 0"}), place_of(first));
}

TEST(StackReport, NothingOfAProcessReachesTheTerminal) {
  auto evil = rank(0, {thread(1, {"f\x1b[2J"})});
  evil.processes[0].command = "a\x1b]0;x\a\nrank 7:";
  evil.processes[0].python = {"Thread \x1b[1m"};
  evil.processes[0].notes = {"\x1b["};
  evil.processes[0].kernel_frames = {"\x1b["};
  evil.processes[0].threads[0].name = "\x1b[7m\n";
  const auto text = to_text({evil});
  EXPECT_THAT(text, Not(HasSubstr("\x1b")));
  EXPECT_THAT(text, Not(HasSubstr("\nrank 7")));
}

TEST(StackReport, ExplainsWhyItMayNotLook) {
  constexpr const char* kRefused = "eu-stack: dwfl_linux_proc_attach pid 7: Operation not permitted";
  EXPECT_FALSE(explain_refusal("TID 7:", 1, 0));
  EXPECT_THAT(*explain_refusal(kRefused, 1, 0), HasSubstr("lets only its parents look into a process (Yama"));
  EXPECT_THAT(*explain_refusal(kRefused, 2, 0), HasSubstr("lets only root"));
  EXPECT_THAT(*explain_refusal(kRefused, 3, 0), HasSubstr("nobody"));
  EXPECT_THAT(*explain_refusal(kRefused, 0, 0), HasSubstr("--cap-add SYS_PTRACE"));
  EXPECT_THAT(*explain_refusal("Reason: Permission denied (os error 13)", std::nullopt, 4121),
              HasSubstr("process 4121 (a debugger?) already looks into it"));
}

TEST(StackReport, AsJson) {
  const auto json = to_json({rank(3, {thread(1, {"f", ""})})});
  EXPECT_EQ(json[0]["rank"], 3);
  EXPECT_EQ(json[0]["processes"][0]["threads"][0]["frames"][0]["function"], "f");
  EXPECT_TRUE(json[0]["processes"][0]["threads"][0]["frames"][1]["function"].is_null());
}

}  // namespace
}  // namespace yoke::stack
