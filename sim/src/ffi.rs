//! The verilated models as safe Rust types: [`CoreModel`] and [`RxFrontModel`].
//!
//! One call a clock, with a plain struct each way. Data, address and strobe fields mean something
//! only while their `valid` is set; without it they keep what they last held.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::raw::{c_char, c_void};
use std::path::Path;
use std::ptr::{self, NonNull};

/// Nanoseconds of a clock of the core.
pub const CLOCK_NS: u64 = 1_000_000 / verbena_abi::limits::CLOCK_KHZ as u64;

/// A beat of an AXI4-Stream of 64 bytes.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Beat {
    /// The bytes, in the order of the frame.
    pub data: [u8; 64],
    /// `tkeep`: a bit a byte.
    pub keep: u64,
    /// `tvalid`.
    pub valid: bool,
    /// `tlast`.
    pub last: bool,
    /// `tuser`: the frame is bad.
    pub user: bool,
    #[doc(hidden)]
    pub pad: [u8; 5],
}

impl Default for Beat {
    fn default() -> Self {
        Self { data: [0; 64], keep: 0, valid: false, last: false, user: false, pad: [0; 5] }
    }
}

/// AXI4-Lite, towards the card.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are those of the ports")]
pub struct AxilIn {
    pub awaddr: u32,
    pub wdata: u32,
    pub araddr: u32,
    pub awvalid: bool,
    pub wvalid: bool,
    pub wstrb: u8,
    pub bready: bool,
    pub arvalid: bool,
    pub rready: bool,
    #[doc(hidden)]
    pub pad: [u8; 2],
}

/// AXI4-Lite, from the card.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are those of the ports")]
pub struct AxilOut {
    pub rdata: u32,
    pub awready: bool,
    pub wready: bool,
    pub bvalid: bool,
    pub bresp: u8,
    pub arready: bool,
    pub rvalid: bool,
    pub rresp: u8,
    #[doc(hidden)]
    pub pad: u8,
}

/// AXI4 of host memory, towards the card.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are those of the ports")]
pub struct AxiIn {
    pub rdata: [u8; 64],
    pub arready: bool,
    pub rvalid: bool,
    pub rid: u8,
    pub rresp: u8,
    pub rlast: bool,
    pub awready: bool,
    pub wready: bool,
    pub bvalid: bool,
    pub bid: u8,
    pub bresp: u8,
    #[doc(hidden)]
    pub pad: [u8; 6],
}

/// AXI4 of host memory, from the card.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are those of the ports")]
pub struct AxiOut {
    pub wdata: [u8; 64],
    pub wstrb: u64,
    pub araddr: u64,
    pub awaddr: u64,
    pub arvalid: bool,
    pub arid: u8,
    pub arlen: u8,
    pub arsize: u8,
    pub arburst: u8,
    pub rready: bool,
    pub awvalid: bool,
    pub awid: u8,
    pub awlen: u8,
    pub awsize: u8,
    pub awburst: u8,
    pub wvalid: bool,
    pub wlast: bool,
    pub bready: bool,
    #[doc(hidden)]
    pub pad: [u8; 2],
}

impl Default for AxiIn {
    fn default() -> Self {
        Self {
            rdata: [0; 64],
            arready: false,
            rvalid: false,
            rid: 0,
            rresp: 0,
            rlast: false,
            awready: false,
            wready: false,
            bvalid: false,
            bid: 0,
            bresp: 0,
            pad: [0; 6],
        }
    }
}

impl Default for AxiOut {
    fn default() -> Self {
        Self {
            wdata: [0; 64],
            wstrb: 0,
            araddr: 0,
            awaddr: 0,
            arvalid: false,
            arid: 0,
            arlen: 0,
            arsize: 0,
            arburst: 0,
            rready: false,
            awvalid: false,
            awid: 0,
            awlen: 0,
            awsize: 0,
            awburst: 0,
            wvalid: false,
            wlast: false,
            bready: false,
            pad: [0; 2],
        }
    }
}

/// Inputs of `verbena_core` in one clock.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CoreIn {
    /// `s_axil_*`.
    pub axil: AxilIn,
    /// `m_axi_*`.
    pub axi: AxiIn,
    /// `s_axis_rx_*`.
    pub rx: Beat,
    /// `rst`.
    pub rst: bool,
    /// `irq_ready`.
    pub irq_ready: bool,
    /// `m_axis_tx_tready`.
    pub tx_ready: bool,
    #[doc(hidden)]
    pub pad: [u8; 5],
}

/// Outputs of `verbena_core`, as the rising edge of the same clock sees them.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct CoreOut {
    /// `s_axil_*`.
    pub axil: AxilOut,
    /// `m_axi_*`.
    pub axi: AxiOut,
    /// `m_axis_tx_*`.
    pub tx: Beat,
    /// `irq_valid`.
    pub irq_valid: bool,
    /// `irq_vector`.
    pub irq_vector: u8,
    /// `s_axis_rx_tready`.
    pub rx_ready: bool,
    #[doc(hidden)]
    pub pad: [u8; 5],
}

/// Inputs of `verbena_rx_front` in one clock.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct RxFrontIn {
    /// `s_axis_rx_*`.
    pub rx: Beat,
    /// Station address, byte 0 in bits 7:0.
    pub cfg_mac: u64,
    /// IPv6 address, first byte in bits 7:0 of word 0.
    pub cfg_ipv6: [u32; 4],
    /// IPv4 address, first byte in bits 7:0.
    pub cfg_ipv4: u32,
    /// Accept any destination.
    pub cfg_promiscuous: bool,
    /// `rst`.
    pub rst: bool,
    #[doc(hidden)]
    pub pad: [u8; 2],
}

/// Outputs of `verbena_rx_front`: what it says of a frame, while `valid`.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
#[expect(missing_docs, reason = "the names are those of the `rep_` ports")]
pub struct RxFrontOut {
    pub reth_va: u64,
    pub reth_rkey: u32,
    pub reth_len: u32,
    pub imm: u32,
    pub dqpn: u32,
    pub psn: u32,
    pub aeth_msn: u32,
    pub pkey: u16,
    pub payload_len: u16,
    pub sport: u16,
    pub rx_ready: bool,
    pub valid: bool,
    pub verdict: u8,
    pub icrc_ok: bool,
    pub is_roce: bool,
    pub opcode: u8,
    pub se: bool,
    pub migreq: bool,
    pub pad_count: u8,
    pub tver: u8,
    pub fecn: bool,
    pub becn: bool,
    pub ackreq: bool,
    pub has_reth: bool,
    pub has_aeth: bool,
    pub aeth_syndrome: u8,
    pub has_imm: bool,
    pub ipv6: bool,
    pub vlan: bool,
    #[doc(hidden)]
    pub pad: [u8; 7],
}

extern "C" {
    fn verbena_layout(numbers: *mut [u32; 4]);
    fn verbena_core_create(trace: *const c_char) -> *mut c_void;
    fn verbena_core_destroy(model: *mut c_void);
    fn verbena_core_step(model: *mut c_void, input: *const CoreIn, output: *mut CoreOut, time_ns: u64);
    fn verbena_rx_front_create() -> *mut c_void;
    fn verbena_rx_front_destroy(model: *mut c_void);
    fn verbena_rx_front_step(model: *mut c_void, input: *const RxFrontIn, output: *mut RxFrontOut);
}

/// Panics if the two sides of the shim disagree about a struct.
fn check_layout() {
    let ours = [
        [size_of::<CoreIn>(), offset_of!(CoreIn, axi), offset_of!(CoreIn, rx), offset_of!(CoreIn, rst)],
        [size_of::<CoreOut>(), offset_of!(CoreOut, axi), offset_of!(CoreOut, tx), offset_of!(CoreOut, irq_valid)],
        [size_of::<AxiOut>(), offset_of!(AxiOut, wstrb), offset_of!(AxiOut, arvalid), offset_of!(AxiOut, bready)],
        [size_of::<RxFrontIn>(), offset_of!(RxFrontIn, cfg_mac), offset_of!(RxFrontIn, cfg_ipv4), offset_of!(RxFrontIn, rst)],
        [size_of::<RxFrontOut>(), offset_of!(RxFrontOut, pkey), offset_of!(RxFrontOut, rx_ready), offset_of!(RxFrontOut, vlan)],
    ];
    let mut theirs = [[0u32; 4]; 5];
    // SAFETY: the function writes five times four numbers and keeps no pointer.
    unsafe { verbena_layout(theirs.as_mut_ptr()) };
    assert_eq!(theirs.map(|row| row.map(|number| number as usize)), ours, "ffi.rs and shim.cpp describe the same structs");
}

/// A verilated `verbena_core`.
#[derive(Debug)]
pub struct CoreModel {
    model: NonNull<c_void>,
}

// SAFETY: a model has its own context and shares nothing with others; it is used through
// `&mut self` alone, by one thread at a time.
unsafe impl Send for CoreModel {}

impl CoreModel {
    /// Returns a model, not yet reset.
    pub fn new() -> Self {
        check_layout();
        // SAFETY: null is allowed; the result is owned by this value until `drop`.
        let model = unsafe { verbena_core_create(ptr::null()) };
        Self { model: NonNull::new(model).expect("operator new does not return null") }
    }

    /// Returns a model, not yet reset, that dumps all signals to an FST file until it is dropped. Slower than one of [`CoreModel::new`].
    ///
    /// Fails if the file can't be created, and in a build without the feature `fst`.
    pub fn with_trace(path: &Path) -> io::Result<Self> {
        check_layout();
        // Verilator does not report a file that it can't write.
        File::create(path)?;
        let path = CString::new(path.as_os_str().as_encoded_bytes())?;
        // SAFETY: the string is valid during the call and not kept; the result is owned by this value until `drop`.
        let model = unsafe { verbena_core_create(path.as_ptr()) };
        let missing = || io::Error::new(io::ErrorKind::Unsupported, "this build dumps no signals; it lacks the feature `fst`");
        Ok(Self { model: NonNull::new(model).ok_or_else(missing)? })
    }

    /// Runs one clock that begins at `time_ns`.
    pub fn step(&mut self, input: &CoreIn, output: &mut CoreOut, time_ns: u64) {
        // SAFETY: the model lives until `drop`; the structs have the layout that the shim expects
        // (checked in `new`) and are not kept. The bytes that the shim stores into `bool` fields
        // are one-bit ports, which Verilator keeps clean: 0 or 1.
        unsafe { verbena_core_step(self.model.as_ptr(), input, output, time_ns) }
    }
}

impl Default for CoreModel {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for CoreModel {
    fn drop(&mut self) {
        // SAFETY: made by `verbena_core_create`, destroyed once.
        unsafe { verbena_core_destroy(self.model.as_ptr()) }
    }
}

/// A verilated `verbena_rx_front`.
#[derive(Debug)]
pub struct RxFrontModel {
    model: NonNull<c_void>,
}

// SAFETY: as for `CoreModel`.
unsafe impl Send for RxFrontModel {}

impl RxFrontModel {
    /// Returns a model, not yet reset.
    pub fn new() -> Self {
        check_layout();
        // SAFETY: no arguments; the result is owned by this value until `drop`.
        let model = unsafe { verbena_rx_front_create() };
        Self { model: NonNull::new(model).expect("operator new does not return null") }
    }

    /// Runs one clock.
    pub fn step(&mut self, input: &RxFrontIn, output: &mut RxFrontOut) {
        // SAFETY: as for `CoreModel::step`.
        unsafe { verbena_rx_front_step(self.model.as_ptr(), input, output) }
    }
}

impl Default for RxFrontModel {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for RxFrontModel {
    fn drop(&mut self) {
        // SAFETY: made by `verbena_rx_front_create`, destroyed once.
        unsafe { verbena_rx_front_destroy(self.model.as_ptr()) }
    }
}
