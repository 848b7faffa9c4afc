# Alveo U50 (xcu50-fsvh2104-2-e): pins and clocks of a shell around the core.
#
# A skeleton. Port names are those that a shell is expected to have; no shell is part of this project yet, and this file has never been
# through Vivado. Pins are facts of the board. See constraints/README.md.

# ---- configuration of the device
set_property CFGBVS GND [current_design]
set_property CONFIG_VOLTAGE 1.8 [current_design]
set_property BITSTREAM.GENERAL.COMPRESS true [current_design]
set_property BITSTREAM.CONFIG.CONFIGFALLBACK ENABLE [current_design]
set_property BITSTREAM.CONFIG.CONFIGRATE 85.0 [current_design]
set_property BITSTREAM.CONFIG.SPI_BUSWIDTH 4 [current_design]
set_property BITSTREAM.CONFIG.UNUSEDPIN Pullup [current_design]
set_operating_conditions -design_power_budget 63

# ---- serves: the memory stacks, which the core does not use. Undriven, the card may switch itself off.
# The shell drives this pin low.
set_property -dict {PACKAGE_PIN J18 IOSTANDARD LVCMOS18 PULLDOWN true} [get_ports hbm_cattrip]
set_false_path -to [get_ports hbm_cattrip]
set_output_delay 0 [get_ports hbm_cattrip]

# ---- serves: the PCIe bridge behind m_axi_*, s_axil_* and irq_* of the core. Gen3 x16; its user clock of 250 MHz is `clk` of the core.
set_property PACKAGE_PIN AF9 [get_ports pcie_refclk_p]
set_property PACKAGE_PIN AF8 [get_ports pcie_refclk_n]
create_clock -period 10.000 -name pcie_refclk [get_ports pcie_refclk_p]
set_property -dict {PACKAGE_PIN AW27 IOSTANDARD LVCMOS18 PULLUP true} [get_ports pcie_reset_n]
set_false_path -from [get_ports pcie_reset_n]
set_input_delay 0 [get_ports pcie_reset_n]

# lane 0, GTY X1Y15
set_property PACKAGE_PIN AL2 [get_ports {pcie_rx_p[0]}]
set_property PACKAGE_PIN AL1 [get_ports {pcie_rx_n[0]}]
set_property PACKAGE_PIN Y5 [get_ports {pcie_tx_p[0]}]
set_property PACKAGE_PIN Y4 [get_ports {pcie_tx_n[0]}]
# lane 1, GTY X1Y14
set_property PACKAGE_PIN AM4 [get_ports {pcie_rx_p[1]}]
set_property PACKAGE_PIN AM3 [get_ports {pcie_rx_n[1]}]
set_property PACKAGE_PIN AA7 [get_ports {pcie_tx_p[1]}]
set_property PACKAGE_PIN AA6 [get_ports {pcie_tx_n[1]}]
# lane 2, GTY X1Y13
set_property PACKAGE_PIN AK4 [get_ports {pcie_rx_p[2]}]
set_property PACKAGE_PIN AK3 [get_ports {pcie_rx_n[2]}]
set_property PACKAGE_PIN AB5 [get_ports {pcie_tx_p[2]}]
set_property PACKAGE_PIN AB4 [get_ports {pcie_tx_n[2]}]
# lane 3, GTY X1Y12
set_property PACKAGE_PIN AN2 [get_ports {pcie_rx_p[3]}]
set_property PACKAGE_PIN AN1 [get_ports {pcie_rx_n[3]}]
set_property PACKAGE_PIN AC7 [get_ports {pcie_tx_p[3]}]
set_property PACKAGE_PIN AC6 [get_ports {pcie_tx_n[3]}]
# lane 4, GTY X1Y11
set_property PACKAGE_PIN AP4 [get_ports {pcie_rx_p[4]}]
set_property PACKAGE_PIN AP3 [get_ports {pcie_rx_n[4]}]
set_property PACKAGE_PIN AD5 [get_ports {pcie_tx_p[4]}]
set_property PACKAGE_PIN AD4 [get_ports {pcie_tx_n[4]}]
# lane 5, GTY X1Y10
set_property PACKAGE_PIN AR2 [get_ports {pcie_rx_p[5]}]
set_property PACKAGE_PIN AR1 [get_ports {pcie_rx_n[5]}]
set_property PACKAGE_PIN AF5 [get_ports {pcie_tx_p[5]}]
set_property PACKAGE_PIN AF4 [get_ports {pcie_tx_n[5]}]
# lane 6, GTY X1Y9
set_property PACKAGE_PIN AT4 [get_ports {pcie_rx_p[6]}]
set_property PACKAGE_PIN AT3 [get_ports {pcie_rx_n[6]}]
set_property PACKAGE_PIN AE7 [get_ports {pcie_tx_p[6]}]
set_property PACKAGE_PIN AE6 [get_ports {pcie_tx_n[6]}]
# lane 7, GTY X1Y8
set_property PACKAGE_PIN AU2 [get_ports {pcie_rx_p[7]}]
set_property PACKAGE_PIN AU1 [get_ports {pcie_rx_n[7]}]
set_property PACKAGE_PIN AH5 [get_ports {pcie_tx_p[7]}]
set_property PACKAGE_PIN AH4 [get_ports {pcie_tx_n[7]}]
# lane 8, GTY X1Y7
set_property PACKAGE_PIN AV4 [get_ports {pcie_rx_p[8]}]
set_property PACKAGE_PIN AV3 [get_ports {pcie_rx_n[8]}]
set_property PACKAGE_PIN AG7 [get_ports {pcie_tx_p[8]}]
set_property PACKAGE_PIN AG6 [get_ports {pcie_tx_n[8]}]
# lane 9, GTY X1Y6
set_property PACKAGE_PIN AW2 [get_ports {pcie_rx_p[9]}]
set_property PACKAGE_PIN AW1 [get_ports {pcie_rx_n[9]}]
set_property PACKAGE_PIN AJ7 [get_ports {pcie_tx_p[9]}]
set_property PACKAGE_PIN AJ6 [get_ports {pcie_tx_n[9]}]
# lane 10, GTY X1Y5
set_property PACKAGE_PIN BA2 [get_ports {pcie_rx_p[10]}]
set_property PACKAGE_PIN BA1 [get_ports {pcie_rx_n[10]}]
set_property PACKAGE_PIN AL7 [get_ports {pcie_tx_p[10]}]
set_property PACKAGE_PIN AL6 [get_ports {pcie_tx_n[10]}]
# lane 11, GTY X1Y4
set_property PACKAGE_PIN BC2 [get_ports {pcie_rx_p[11]}]
set_property PACKAGE_PIN BC1 [get_ports {pcie_rx_n[11]}]
set_property PACKAGE_PIN AM9 [get_ports {pcie_tx_p[11]}]
set_property PACKAGE_PIN AM8 [get_ports {pcie_tx_n[11]}]
# lane 12, GTY X1Y3
set_property PACKAGE_PIN AY4 [get_ports {pcie_rx_p[12]}]
set_property PACKAGE_PIN AY3 [get_ports {pcie_rx_n[12]}]
set_property PACKAGE_PIN AN7 [get_ports {pcie_tx_p[12]}]
set_property PACKAGE_PIN AN6 [get_ports {pcie_tx_n[12]}]
# lane 13, GTY X1Y2
set_property PACKAGE_PIN BB4 [get_ports {pcie_rx_p[13]}]
set_property PACKAGE_PIN BB3 [get_ports {pcie_rx_n[13]}]
set_property PACKAGE_PIN AP9 [get_ports {pcie_tx_p[13]}]
set_property PACKAGE_PIN AP8 [get_ports {pcie_tx_n[13]}]
# lane 14, GTY X1Y1
set_property PACKAGE_PIN BD4 [get_ports {pcie_rx_p[14]}]
set_property PACKAGE_PIN BD3 [get_ports {pcie_rx_n[14]}]
set_property PACKAGE_PIN AR7 [get_ports {pcie_tx_p[14]}]
set_property PACKAGE_PIN AR6 [get_ports {pcie_tx_n[14]}]
# lane 15, GTY X1Y0
set_property PACKAGE_PIN BE6 [get_ports {pcie_rx_p[15]}]
set_property PACKAGE_PIN BE5 [get_ports {pcie_rx_n[15]}]
set_property PACKAGE_PIN AT9 [get_ports {pcie_tx_p[15]}]
set_property PACKAGE_PIN AT8 [get_ports {pcie_tx_n[15]}]

# ---- serves: the 100G MAC (CMAC X0Y4) behind m_axis_tx_* and s_axis_rx_* of the core. Reference clock of 161.1328125 MHz.
set_property PACKAGE_PIN N36 [get_ports qsfp_refclk_p]
set_property PACKAGE_PIN N37 [get_ports qsfp_refclk_n]
create_clock -period 6.206 -name qsfp_refclk [get_ports qsfp_refclk_p]

# lane 0, GTY X0Y28
set_property PACKAGE_PIN J45 [get_ports {qsfp_rx_p[0]}]
set_property PACKAGE_PIN J46 [get_ports {qsfp_rx_n[0]}]
set_property PACKAGE_PIN D42 [get_ports {qsfp_tx_p[0]}]
set_property PACKAGE_PIN D43 [get_ports {qsfp_tx_n[0]}]
# lane 1, GTY X0Y29
set_property PACKAGE_PIN G45 [get_ports {qsfp_rx_p[1]}]
set_property PACKAGE_PIN G46 [get_ports {qsfp_rx_n[1]}]
set_property PACKAGE_PIN C40 [get_ports {qsfp_tx_p[1]}]
set_property PACKAGE_PIN C41 [get_ports {qsfp_tx_n[1]}]
# lane 2, GTY X0Y30
set_property PACKAGE_PIN F43 [get_ports {qsfp_rx_p[2]}]
set_property PACKAGE_PIN F44 [get_ports {qsfp_rx_n[2]}]
set_property PACKAGE_PIN B42 [get_ports {qsfp_tx_p[2]}]
set_property PACKAGE_PIN B43 [get_ports {qsfp_tx_n[2]}]
# lane 3, GTY X0Y31
set_property PACKAGE_PIN E45 [get_ports {qsfp_rx_p[3]}]
set_property PACKAGE_PIN E46 [get_ports {qsfp_rx_n[3]}]
set_property PACKAGE_PIN A40 [get_ports {qsfp_tx_p[3]}]
set_property PACKAGE_PIN A41 [get_ports {qsfp_tx_n[3]}]

# ---- serves: the bridge between the core's clock and the MAC's (322.265625 MHz). It does not exist yet.
# It will be two asynchronous FIFOs with Gray-coded pointers, one for m_axis_tx_* and one for s_axis_rx_*. Their crossings are the only ones between
# the two clocks. Each pointer then needs, in both directions, with the names of its flops:
#   set_max_delay -datapath_only -from [get_cells <pointer>_gray_reg[*]] -to [get_cells <pointer>_sync_reg[0][*]] 3.103
#   set_bus_skew  -from [get_cells <pointer>_gray_reg[*]] -to [get_cells <pointer>_sync_reg[0][*]] 3.103
# Do not declare the two clocks asynchronous as a whole: that would hide a crossing that is not one of these.

# ---- serves: the reset of the core. `rst` is synchronous to `clk`: the shell brings PERST# and the bridge's reset through a synchroniser, whose
# first flop is the only one that needs an exception:
#   set_false_path -to [get_pins <reset synchroniser>/sync_reg[*]/PRE]

# ---- floorplan: PCIe block and DMA engine are at home in SLR0. Only register slices cross to the other one.
#   create_pblock pcie ; resize_pblock pcie -add {CLOCKREGION_X6Y0:CLOCKREGION_X7Y3}
#   create_pblock mac  ; resize_pblock mac  -add {CLOCKREGION_X0Y6:CLOCKREGION_X0Y7}
