#include "yoke/device/process/port_owner.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "yoke/base/file.h"
#include "yoke/device/process/info.h"

namespace yoke::device {
namespace {

constexpr const char* kSockets =
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:4C15 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1001        0 11 1 0000 100 0 0 10 "
    "0\n"
    "   1: 0100007F:4C15 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4711 1 0000 100 0 0 10 "
    "0\n"
    "   2: 0100007F:14C1 00000000:0000 0A\n";

TEST(PortOwner, IsOfTheSocketThatListens) {
  EXPECT_EQ(find_listening_socket(kSockets, 0x4C15), (ListeningSocket{1000, 4711}));
  EXPECT_EQ(find_listening_socket(kSockets, 0x1F90), std::nullopt) << "the other end of a connection";
  EXPECT_EQ(find_listening_socket(kSockets, 0x14C1), std::nullopt) << "the line is cut";
  EXPECT_EQ(find_listening_socket("", 1), std::nullopt);
}

TEST(PortOwner, IsNamedWithItsUser) {
  const UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(fd.value(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(fd.value(), 1), 0);
  ASSERT_EQ(getsockname(fd.value(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(who_listens(ntohs(address.sin_port)),
            fmt::format("process {} of {} ({})", getpid(), user_name(geteuid()), describe_process(getpid()).name));
  EXPECT_EQ(who_listens(0), "");
}

}  // namespace
}  // namespace yoke::device
