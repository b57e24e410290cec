// A rank that makes its first tensor, writes a line, and waits to be killed.
#include <ATen/ops/ones.h>
#include <unistd.h>

#include "yoke/dist/plug.h"

int main() {
  const bool right = at::ones({3}).sum().item<float>() == 3 && yoke::dist::plug_status().reason != "";
  if (!right || write(STDOUT_FILENO, "\n", 1) != 1) return 1;
  while (true) pause();
}
