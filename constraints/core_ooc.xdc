# The core alone, out of context: module verbena_core, any UltraScale+ part. See constraints/README.md.

# ---- serves: all of the core. One clock, 250 MHz; inside there is no other, and no crossing.
create_clock -period 4.000 -name clk [get_ports clk]
set_clock_uncertainty 0.100 [get_clocks clk]

# ---- serves: `csr/axil.rs` (s_axil_*), `dma/engine.rs` (m_axi_*), `cq/event_writer.rs` (irq_*), `tx/mac_out.rs` (m_axis_tx_*),
# `rx/intake.rs` (s_axis_rx_*), and the reset. Half of the period is left to the shell on either side, all on the same clock.
set_input_delay 2.000 -clock clk [get_ports -filter {DIRECTION == IN && NAME != clk}]
set_output_delay 2.000 -clock clk [get_ports -filter {DIRECTION == OUT}]

# ---- serves: nothing. There are no false paths and no multicycle paths in the core: every path has one clock.
