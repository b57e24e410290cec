"""A Jupyter kernel that answers every cell with the reason why it has no devices.

`yoke jupyter start` runs it instead of the real kernel, because Jupyter would show the user only that a kernel has died.
Usage: python yoke_refusal_kernel.py REASON -f CONNECTION_FILE
"""

import sys

from ipykernel.kernelapp import IPKernelApp
from ipykernel.kernelbase import Kernel


class RefusalKernel(Kernel):
    implementation = "yoke"
    implementation_version = "1"
    language_info = {"name": "python", "mimetype": "text/x-python", "file_extension": ".py"}
    reason = ""
    banner = "This kernel has no devices."

    def do_execute(self, code, silent, *_, **__):
        text = f"{self.reason}. Nothing has run. Restart the kernel to try again."
        error = {"ename": "NoDevices", "evalue": text, "traceback": [text]}
        if not silent:
            self.send_response(self.iopub_socket, "error", error)
        return {"status": "error", "execution_count": self.execution_count, **error}


if __name__ == "__main__":
    RefusalKernel.reason = sys.argv[1].rstrip(".")
    IPKernelApp.launch_instance(argv=sys.argv[2:], kernel_class=RefusalKernel)
