//! The stream: data with `valid` and `ready`.
//!
//! `valid` never waits for `ready`; data holds still while `valid & !ready`; a transfer is both.

use rust_hdl::prelude::*;

/// The end that offers data.
#[derive(LogicInterface, Clone, Debug, Default)]
#[join = "StreamSink"]
pub struct StreamSource<T: Synth> {
    /// What is offered.
    pub data: Signal<Out, T>,
    /// Something is offered.
    pub valid: Signal<Out, Bit>,
    /// The other end takes it.
    pub ready: Signal<In, Bit>,
}

/// The end that takes data.
#[derive(LogicInterface, Clone, Debug, Default)]
#[join = "StreamSource"]
pub struct StreamSink<T: Synth> {
    /// What is offered.
    pub data: Signal<In, T>,
    /// Something is offered.
    pub valid: Signal<In, Bit>,
    /// This end takes it.
    pub ready: Signal<Out, Bit>,
}
