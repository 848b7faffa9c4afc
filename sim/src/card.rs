//! A verilated card with everything that its outer ports need: registers, host memory, interrupts, MAC.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

use crate::axi::Checker;
use crate::axil::BarPort;
use crate::fault::Fault;
use crate::ffi::{CoreIn, CoreModel, CoreOut, CLOCK_NS};
use crate::link::{LinkConfig, MacCounts, MacRx, MacTx, Wire};
use crate::memory::Memory;
use crate::pcie::{HostPort, PcieConfig, PcieCounts, Stray};
use crate::rng::Rng;
use crate::tap::Tap;

/// Clocks for which `rst` is high.
const RESET_CLOCKS: u64 = 16;
/// Clocks between two looks at the other card's progress.
const STRIDE: u64 = 16;

/// What a card has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CardCounts {
    /// Frames sent.
    pub tx: MacCounts,
    /// Frames received.
    pub rx: MacCounts,
    /// Host memory accesses.
    pub pcie: PcieCounts,
    /// Interrupts raised.
    pub interrupts: u64,
}

/// A card and its surroundings.
#[derive(Debug)]
pub struct Card {
    number: usize,
    clock: u64,
    model: CoreModel,
    input: Box<CoreIn>,
    output: Box<CoreOut>,
    /// The registers' port.
    pub bar: BarPort,
    /// Host memory, as this card sees it.
    pub memory: Memory,
    host: HostPort,
    checker: Checker,
    tx: MacTx,
    rx: MacRx,
    irq_stall_percent: u8,
    irq_rng: Rng,
    pending: u32,
    interrupts: u64,
    fault: Option<Fault>,
    tap: Option<Tap>,
}

impl Card {
    /// Returns card `number` made of `model`, at clock 0 and about to be reset.
    pub fn new(
        number: usize,
        model: CoreModel,
        seed: u64,
        pcie: PcieConfig,
        link: LinkConfig,
        [outgoing, incoming]: [Arc<Wire>; 2],
    ) -> Self {
        let stream = |index: u64| Rng::new(seed, 16 * number as u64 + index);
        Self {
            number,
            clock: 0,
            model,
            input: Box::default(),
            output: Box::default(),
            bar: BarPort::new(pcie.mmio_latency),
            memory: Memory::new(),
            host: HostPort::new(pcie, stream(0)),
            checker: Checker::new(pcie.id_reuse),
            tx: MacTx::new(link, outgoing, stream(1)),
            rx: MacRx::new(link, incoming, stream(2)),
            irq_stall_percent: pcie.stall_percent,
            irq_rng: stream(3),
            pending: 0,
            interrupts: 0,
            fault: None,
            tap: None,
        }
    }

    /// Returns the number of clocks that are done.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Returns what stopped this card, if something did.
    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Returns what the card has done.
    pub fn counts(&self) -> CardCounts {
        CardCounts { tx: self.tx.counts(), rx: self.rx.counts(), pcie: self.host.counts(), interrupts: self.interrupts }
    }

    /// Returns the sending half of the MAC.
    pub fn mac_tx(&mut self) -> &mut MacTx {
        &mut self.tx
    }

    /// Returns the record of what passes the ports, which begins with the first call.
    pub fn tap(&mut self) -> &mut Tap {
        self.tap.get_or_insert_default()
    }

    /// Tells whether no access of host memory and no register write is under way.
    pub fn is_idle(&self) -> bool {
        self.host.is_idle() && self.bar.is_idle()
    }

    /// Returns the vectors raised since the last call, as a mask.
    pub fn take_interrupts(&mut self) -> u32 {
        std::mem::take(&mut self.pending)
    }

    /// Queues a register write.
    pub fn write_register(&mut self, offset: u32, value: u32) {
        self.bar.write(self.clock, offset, value);
    }

    /// Queues a register read.
    pub fn read_register(&mut self, offset: u32) {
        self.bar.read(self.clock, offset);
    }

    /// Returns what the last register read found, once it is back.
    pub fn take_register(&mut self) -> Option<u32> {
        self.bar.take_answer(self.clock)
    }

    /// Runs up to clock `goal`, never further than `window` clocks ahead of the other card's progress
    /// `peer`, and publishes the own progress in `mine`; a fault ends it early, as `u64::MAX`.
    pub fn run_to(&mut self, goal: u64, window: u64, mine: &AtomicU64, peer: &AtomicU64) {
        let stopped = StopOnUnwind(mine);
        while self.clock < goal && self.fault.is_none() {
            let mut spins = 0u32;
            let limit = loop {
                let limit = peer.load(Ordering::Acquire).saturating_add(window).min(goal);
                if limit > self.clock {
                    break limit;
                }
                // The other card is usually a few clocks behind, on a core of its own. If it has
                // none, spinning would keep it from running.
                spins += 1;
                if spins < 64 {
                    std::hint::spin_loop();
                } else {
                    std::thread::yield_now();
                }
            };
            let stop = limit.min(self.clock + STRIDE);
            while self.clock < stop {
                if let Err(fault) = self.tick() {
                    self.fault = Some(fault);
                    break;
                }
            }
            mine.store(if self.fault.is_some() { u64::MAX } else { self.clock }, Ordering::Release);
        }
        std::mem::forget(stopped);
    }

    /// Runs one clock.
    pub fn tick(&mut self) -> Result<(), Fault> {
        let (clock, input, output) = (self.clock, &mut *self.input, &mut *self.output);
        let number = self.number;
        let protocol = |rule: String| Fault::Protocol { card: number, clock, rule };

        input.rst = clock < RESET_CLOCKS;
        if input.rst {
            // Outputs mean nothing yet, and no input is valid.
            self.model.step(input, output, clock * CLOCK_NS);
            self.clock += 1;
            return Ok(());
        }
        self.bar.drive(clock, &mut input.axil);
        self.host.drive(clock, &mut input.axi, &mut self.memory).map_err(|Stray { at, id, is_write }| Fault::Canary {
            card: number,
            clock,
            is_write,
            address: at.address,
            len_bytes: at.len_bytes,
            id,
        })?;
        input.tx_ready = self.tx.drive(clock);
        self.rx.drive(clock, &mut input.rx);
        input.irq_ready = !self.irq_rng.percent(self.irq_stall_percent);

        self.model.step(input, output, clock * CLOCK_NS);

        if let Some(tap) = &mut self.tap {
            tap.note(clock, input, output);
        }
        self.checker.check(&output.axi, &input.axi).map_err(protocol)?;
        self.bar.sample(clock, &output.axil, &mut input.axil).map_err(protocol)?;
        self.host.sample(clock, &output.axi, &input.axi).map_err(protocol)?;
        self.tx.sample(clock, &output.tx, input.tx_ready).map_err(protocol)?;
        self.rx.sample(&mut input.rx, output.rx_ready);
        if output.irq_valid && input.irq_ready {
            self.pending |= 1 << (output.irq_vector & 31);
            self.interrupts += 1;
        }
        self.clock += 1;
        Ok(())
    }
}

/// Lets the other card go on, and end, when this one's thread panics.
struct StopOnUnwind<'a>(&'a AtomicU64);

impl Drop for StopOnUnwind<'_> {
    fn drop(&mut self) {
        self.0.store(u64::MAX, Ordering::Release);
    }
}
