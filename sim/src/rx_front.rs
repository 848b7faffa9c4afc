//! The verilated receive parser alone: frames in, one report a frame out.

use std::collections::VecDeque;

use verbena_abi::limits::BEAT_BYTES;
use verbena_abi::wire::{RxVerdict, MIN_FRAME};

use crate::fault::Fault;
use crate::ffi::{RxFrontIn, RxFrontModel, RxFrontOut};

/// Clocks without a step forward after which the parser hangs.
const DEADLINE: u64 = 10_000;
const RESET_CLOCKS: u64 = 16;

/// What the hardware says of a frame.
#[derive(Clone, Copy, Debug)]
pub struct Report {
    /// What becomes of it.
    pub verdict: RxVerdict,
    /// The header fields, as the ports gave them.
    pub fields: RxFrontOut,
}

/// A verilated `verbena_rx_front` that accepts any destination.
#[derive(Debug)]
pub struct RxFront {
    model: RxFrontModel,
    input: Box<RxFrontIn>,
    output: Box<RxFrontOut>,
    clock: u64,
    reports: VecDeque<Report>,
    reported: u64,
}

impl Default for RxFront {
    fn default() -> Self {
        Self::new()
    }
}

impl RxFront {
    /// Returns a parser after its reset.
    pub fn new() -> Self {
        let input = Box::new(RxFrontIn { cfg_promiscuous: true, rst: true, ..RxFrontIn::default() });
        let mut front = Self { model: RxFrontModel::new(), input, output: Box::default(), clock: 0, reports: VecDeque::new(), reported: 0 };
        for _ in 0..RESET_CLOCKS {
            front.model.step(&front.input, &mut front.output);
            front.clock += 1;
        }
        front.input.rst = false;
        front
    }

    /// Returns the number of clocks that are done.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Returns the number of reports that were made, fetched or not.
    pub fn reported(&self) -> u64 {
        self.reported
    }

    /// Feeds a frame, padded to 60 bytes as a MAC delivers it. Its report may come frames later.
    pub fn feed(&mut self, frame: &[u8]) -> Result<(), Fault> {
        let mut padded = [0; MIN_FRAME];
        let frame = if frame.len() < MIN_FRAME {
            padded[..frame.len()].copy_from_slice(frame);
            &padded
        } else {
            frame
        };
        let beats = frame.len().div_ceil(BEAT_BYTES);
        for (number, chunk) in frame.chunks(BEAT_BYTES).enumerate() {
            self.input.rx.data[..chunk.len()].copy_from_slice(chunk);
            self.input.rx.keep = u64::MAX >> (BEAT_BYTES - chunk.len());
            self.input.rx.last = number + 1 == beats;
            self.input.rx.valid = true;
            let start = self.clock;
            loop {
                self.tick()?;
                if self.output.rx_ready {
                    break;
                }
                self.check_deadline(start, "s_axis_rx_tready of the parser")?;
            }
            self.input.rx.valid = false;
        }
        Ok(())
    }

    /// Returns the next report if there is one already.
    pub fn poll(&mut self) -> Option<Report> {
        self.reports.pop_front()
    }

    /// Returns the next report, giving the parser the clocks that it takes.
    pub fn wait(&mut self) -> Result<Report, Fault> {
        let start = self.clock;
        loop {
            if let Some(report) = self.reports.pop_front() {
                return Ok(report);
            }
            self.check_deadline(start, "a report of the parser")?;
            self.tick()?;
        }
    }

    fn check_deadline(&self, start: u64, what: &str) -> Result<(), Fault> {
        let waited = self.clock - start;
        if waited > DEADLINE {
            return Err(Fault::Timeout { clock: self.clock, waited, what: what.to_owned() });
        }
        Ok(())
    }

    fn tick(&mut self) -> Result<(), Fault> {
        self.model.step(&self.input, &mut self.output);
        self.clock += 1;
        if self.output.valid {
            let verdict = RxVerdict::try_from(self.output.verdict).map_err(|code| Fault::Protocol {
                card: 0,
                clock: self.clock,
                rule: format!("rep_verdict is {}, which is no verdict", code.0),
            })?;
            self.reported += 1;
            self.reports.push_back(Report { verdict, fields: *self.output });
        }
        Ok(())
    }
}
