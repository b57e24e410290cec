// Each cell is compiled as this file is: see yoke_cpp_kernel.py.
