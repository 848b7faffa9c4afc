//! Host memory: read and write engines over AXI4.
