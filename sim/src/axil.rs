//! The host's accesses to BAR0: a queue of register writes and reads, one at a time, in order.
//!
//! An access reaches the card `mmio_latency` clocks after the host made it, and the answer of a
//! read takes as long to come back. Writes are posted.

use std::collections::VecDeque;

use crate::ffi::{AxilIn, AxilOut};

/// Clocks after which an access that is not answered fails the run.
const DEADLINE: u64 = 10_000;

#[derive(Clone, Copy, Debug)]
enum Access {
    Write(u32),
    Read,
}

#[derive(Clone, Copy, Debug)]
struct Request {
    offset: u32,
    access: Access,
    at: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Busy,
}

/// The master of the card's `s_axil` port. Each clock: [`BarPort::drive`], then the card, then [`BarPort::sample`].
#[derive(Debug)]
pub struct BarPort {
    latency: u64,
    queue: VecDeque<Request>,
    state: State,
    started: u64,
    answer: Option<(u32, u64)>,
}

impl BarPort {
    /// Returns a port with nothing to do.
    pub fn new(latency: u64) -> Self {
        Self { latency, queue: VecDeque::with_capacity(64), state: State::Idle, started: 0, answer: None }
    }

    /// Queues a write.
    pub fn write(&mut self, clock: u64, offset: u32, value: u32) {
        self.queue.push_back(Request { offset, access: Access::Write(value), at: clock + self.latency });
    }

    /// Queues a read, to be fetched with [`BarPort::take_answer`] before the next one.
    pub fn read(&mut self, clock: u64, offset: u32) {
        self.answer = None;
        self.queue.push_back(Request { offset, access: Access::Read, at: clock + self.latency });
    }

    /// Returns what the last read found, once it is back at the host.
    pub fn take_answer(&mut self, clock: u64) -> Option<u32> {
        self.answer.take_if(|(_, at)| *at <= clock).map(|(value, _)| value)
    }

    /// Tells whether all accesses have reached the card.
    pub fn is_idle(&self) -> bool {
        self.queue.is_empty()
    }

    /// Sets the card's inputs of this clock.
    pub fn drive(&mut self, clock: u64, input: &mut AxilIn) {
        if self.state == State::Busy {
            return;
        }
        let Some(request) = self.queue.front().filter(|request| request.at <= clock) else { return };
        self.state = State::Busy;
        self.started = clock;
        match request.access {
            Access::Write(value) => {
                (input.awaddr, input.wdata, input.wstrb) = (request.offset, value, 0xF);
                (input.awvalid, input.wvalid, input.bready) = (true, true, true);
            }
            Access::Read => {
                input.araddr = request.offset;
                (input.arvalid, input.rready) = (true, true);
            }
        }
    }

    /// Takes what the card's outputs and our inputs of this clock agreed on.
    /// Fails, saying what is broken, on an error response and on an access that hangs.
    pub fn sample(&mut self, clock: u64, output: &AxilOut, input: &mut AxilIn) -> Result<(), String> {
        if self.state == State::Idle {
            return Ok(());
        }
        let Some(request) = self.queue.front() else { return Ok(()) };
        input.awvalid &= !output.awready;
        input.wvalid &= !output.wready;
        input.arvalid &= !output.arready;
        let response = if input.bready && output.bvalid {
            Some(output.bresp)
        } else if input.rready && output.rvalid {
            self.answer = Some((output.rdata, clock + 1 + self.latency));
            Some(output.rresp)
        } else {
            None
        };
        match response {
            Some(0) => {
                (input.bready, input.rready) = (false, false);
                self.state = State::Idle;
                self.queue.pop_front();
                Ok(())
            }
            Some(code) => Err(format!("access of BAR0 at {:#x} answered with error {code}", request.offset)),
            None if clock - self.started > DEADLINE => Err(format!("access of BAR0 at {:#x} is not answered", request.offset)),
            None => Ok(()),
        }
    }
}
