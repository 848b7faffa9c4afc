//! From the MAC to host memory.
