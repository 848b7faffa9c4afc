//! The AXI4 port of host memory, with the timing of a PCIe link behind it.
//!
//! | direction | carries | costs beside the data |
//! |---|---|---|
//! | card to host | write TLPs of up to MPS bytes, read requests | 24 bytes a TLP |
//! | host to card | completions of up to MPS bytes | 20 bytes a TLP |
//!
//! A read burst is cut into requests of MRRS bytes, each of which holds a tag until its last byte is
//! back. Its first beat comes back `read_latency` clocks after the burst was taken, if the link is
//! idle. Bursts with one ID come back in order, others in any: most by age, some by chance. Writes
//! are posted: they become visible in order, when they have crossed, and are answered soon after.
//! Flow-control packets and refresh of the host's memory are not modelled.

use std::collections::VecDeque;

use crate::axi::IdReuse;
use crate::ffi::{AxiIn, AxiOut};
use crate::memory::{Memory, Unmapped, LINE};
use crate::rng::Rng;

/// Bytes of a TLP with a 64-bit address beside its data: framing, header, LCRC.
pub const REQUEST_OVERHEAD: u64 = 4 + 16 + 4;
/// Bytes of a completion beside its data.
pub const COMPLETION_OVERHEAD: u64 = 4 + 12 + 4;
/// Bytes that wait for the link before the bridge takes no more.
const POSTED_BUFFER: u64 = 2048;
/// Read bursts that the bridge holds, and requests that it takes ahead of their data.
const READ_BURSTS: usize = 256;
const WRITE_BURSTS: usize = 32;
/// Most read requests of a burst of 4 KiB with the smallest MRRS, 128, from an unaligned address.
const MAX_REQUESTS: usize = 33;
/// Of a hundred choices between bursts with data, so many are by chance and not by age.
const REORDER_PERCENT: u8 = 25;

/// Time on the link: 2^-20 clocks.
const CLOCK: u64 = 1 << 20;

/// A PCIe link and the host behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PcieConfig {
    /// Clocks from a taken read burst to its first beat, on an idle link.
    pub read_latency: u64,
    /// Clocks by which that may be more, by chance.
    pub read_jitter: u64,
    /// Raw rate of each direction, MB/s.
    pub megabytes_per_s: u64,
    /// MPS, bytes.
    pub max_payload: u64,
    /// MRRS, bytes; at least 128.
    pub max_read_request: u64,
    /// Read requests under way, at most.
    pub tags: u32,
    /// Clocks from a write's crossing to its answer.
    pub write_latency: u64,
    /// Clocks from the host's access of a register to the card, one way.
    pub mmio_latency: u64,
    /// Bursts of different IDs may take turns, request by request.
    pub interleave: bool,
    /// What the checker says of an ID used twice.
    pub id_reuse: IdReuse,
    /// Of a hundred clocks, so many in which a ready is low, or a valid late, by chance.
    pub stall_percent: u8,
}

impl PcieConfig {
    /// Gen3 x16: 15.75 GB/s. The default.
    pub const GEN3_X16: Self = Self {
        read_latency: 200,
        read_jitter: 16,
        megabytes_per_s: 15_754,
        max_payload: 256,
        max_read_request: 512,
        tags: 256,
        write_latency: 8,
        mmio_latency: 75,
        interleave: false,
        id_reuse: IdReuse::Forbid,
        stall_percent: 0,
    };
    /// Gen4 x8: the rate of Gen3 x16.
    pub const GEN4_X8: Self = Self { megabytes_per_s: 15_754, ..Self::GEN3_X16 };
    /// Gen4 x16: 31.5 GB/s, of which the 64-byte port takes 16.
    pub const GEN4_X16: Self = Self { megabytes_per_s: 31_508, ..Self::GEN3_X16 };
}

impl Default for PcieConfig {
    fn default() -> Self {
        Self::GEN3_X16
    }
}

/// What crossed the port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PcieCounts {
    /// Read bursts taken.
    pub read_bursts: u64,
    /// Beats of read data given.
    pub read_beats: u64,
    /// Write bursts taken.
    pub write_bursts: u64,
    /// Beats of write data taken.
    pub write_beats: u64,
}

/// An access that went wrong, with the AXI ID of its burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stray {
    /// What was touched.
    pub at: Unmapped,
    /// The burst's ID.
    pub id: u8,
    /// Direction, from the card's view.
    pub is_write: bool,
}

#[derive(Clone, Debug)]
struct ReadBurst {
    id: u8,
    /// Next byte to give, next byte to ask for, end.
    at: u64,
    asked: u64,
    end: u64,
    /// The next beat is the first of a request.
    begins: bool,
    jitter: u64,
    /// When the data of each request is there, and how many are asked for and done.
    ready: [u64; MAX_REQUESTS],
    requests: u8,
    done: u8,
}

#[derive(Clone, Copy, Debug)]
struct WriteBurst {
    id: u8,
    line: u64,
    beats: u32,
    is_first: bool,
}

#[derive(Clone, Copy, Debug)]
struct PostedBeat {
    line: u64,
    strobe: u64,
    id: u8,
    visible: u64,
    data: [u8; LINE],
}

/// The slave behind the card's `m_axi` port. Each clock: [`HostPort::drive`], then the card, then [`HostPort::sample`].
#[derive(Debug)]
pub struct HostPort {
    config: PcieConfig,
    per_byte: u64,
    counts: PcieCounts,
    rng: Rng,
    /// When the link's directions are free.
    up_free: u64,
    down_free: u64,

    bursts: Vec<ReadBurst>,
    spare: Vec<u16>,
    /// Bursts with requests to send, by age.
    asking: VecDeque<u16>,
    /// Bursts by ID, and the IDs that have some.
    by_id: Vec<VecDeque<u16>>,
    ids: Vec<u8>,
    current: Option<u16>,
    /// No head of an ID has data before this clock.
    nothing_before: u64,
    tags: u32,
    r_held: bool,

    writes: VecDeque<WriteBurst>,
    posted: VecDeque<PostedBeat>,
    answers: VecDeque<(u8, u64)>,
    b_held: bool,
}

impl HostPort {
    /// Returns a port on which nothing is under way.
    pub fn new(config: PcieConfig, rng: Rng) -> Self {
        assert!(config.max_read_request >= 128 && config.max_read_request.is_power_of_two(), "MRRS is 128 to 4096");
        assert!(config.max_payload >= 128 && config.max_payload.is_power_of_two(), "MPS is 128 to 4096");
        assert!(config.tags > 0 && config.stall_percent < 100, "the link must be able to move");
        let clock_mhz = u64::from(verbena_abi::limits::CLOCK_KHZ / 1000);
        Self {
            config,
            per_byte: (CLOCK * clock_mhz + config.megabytes_per_s / 2) / config.megabytes_per_s,
            counts: PcieCounts::default(),
            rng,
            up_free: 0,
            down_free: 0,
            bursts: Vec::with_capacity(READ_BURSTS),
            spare: Vec::with_capacity(READ_BURSTS),
            asking: VecDeque::with_capacity(READ_BURSTS),
            by_id: vec![VecDeque::new(); 256],
            ids: Vec::with_capacity(256),
            current: None,
            nothing_before: 0,
            tags: 0,
            r_held: false,
            writes: VecDeque::with_capacity(WRITE_BURSTS),
            posted: VecDeque::with_capacity(256),
            answers: VecDeque::with_capacity(256),
            b_held: false,
        }
    }

    /// Returns what crossed the port so far.
    pub fn counts(&self) -> PcieCounts {
        self.counts
    }

    /// Tells whether nothing is under way.
    pub fn is_idle(&self) -> bool {
        self.ids.is_empty() && self.writes.is_empty() && self.posted.is_empty() && self.answers.is_empty()
    }

    /// Sets the card's inputs of this clock. What has crossed the link becomes visible first.
    pub fn drive(&mut self, clock: u64, input: &mut AxiIn, memory: &mut Memory) -> Result<(), Stray> {
        while self.posted.front().is_some_and(|beat| beat.visible <= clock) {
            if let Some(beat) = self.posted.pop_front() {
                memory.write_line(beat.line, &beat.data, beat.strobe).map_err(|at| Stray { at, id: beat.id, is_write: true })?;
            }
        }
        if !self.r_held {
            input.rvalid = self.offer_read(clock, input, memory)?;
            self.r_held = input.rvalid;
        }
        if !self.b_held {
            input.bvalid = false;
            if let Some(&(id, at)) = self.answers.front() {
                if at <= clock && !self.rng.percent(self.config.stall_percent) {
                    (input.bvalid, input.bid, input.bresp) = (true, id, 0);
                    self.b_held = true;
                }
            }
        }
        let has_room = self.up_free <= clock * CLOCK + POSTED_BUFFER * self.per_byte;
        input.arready = self.bursts.len() - self.spare.len() < READ_BURSTS && !self.rng.percent(self.config.stall_percent);
        input.awready = self.writes.len() < WRITE_BURSTS && !self.rng.percent(self.config.stall_percent);
        input.wready = has_room && !self.writes.is_empty() && !self.rng.percent(self.config.stall_percent);
        Ok(())
    }

    /// Takes what the card's outputs and our inputs of this clock agreed on.
    /// Fails, saying what is broken, on a write that does not keep to its request.
    pub fn sample(&mut self, clock: u64, output: &AxiOut, input: &AxiIn) -> Result<(), String> {
        if output.arvalid && input.arready {
            self.take_read(output);
        }
        if output.rready {
            self.r_held = false;
        }
        if output.wvalid && input.wready {
            self.take_beat(clock, output)?;
        }
        if output.awvalid && input.awready {
            let line = output.awaddr & !(LINE as u64 - 1);
            self.writes.push_back(WriteBurst { id: output.awid, line, beats: u32::from(output.awlen) + 1, is_first: true });
            self.counts.write_bursts += 1;
        }
        if input.bvalid && output.bready {
            self.b_held = false;
            self.answers.pop_front();
        }
        self.ask(clock);
        Ok(())
    }

    fn take_read(&mut self, output: &AxiOut) {
        let jitter = self.rng.below(self.config.read_jitter + 1);
        let end = if output.arsize < 6 {
            output.araddr + (1 << output.arsize)
        } else {
            (output.araddr & !(LINE as u64 - 1)) + LINE as u64 * (u64::from(output.arlen) + 1)
        };
        let burst = ReadBurst {
            id: output.arid,
            at: output.araddr,
            asked: output.araddr,
            end,
            begins: true,
            jitter,
            ready: [0; MAX_REQUESTS],
            requests: 0,
            done: 0,
        };
        let slot = match self.spare.pop() {
            Some(slot) => {
                self.bursts[usize::from(slot)] = burst;
                slot
            }
            None => {
                self.bursts.push(burst);
                (self.bursts.len() - 1) as u16
            }
        };
        self.asking.push_back(slot);
        let queue = &mut self.by_id[usize::from(output.arid)];
        if queue.is_empty() {
            self.ids.push(output.arid);
        }
        queue.push_back(slot);
        self.counts.read_bursts += 1;
    }

    /// Sends read requests while there are tags and room on the link.
    fn ask(&mut self, clock: u64) {
        let limit = clock * CLOCK + (POSTED_BUFFER + LINE as u64) * self.per_byte;
        while let Some(&slot) = self.asking.front() {
            if self.tags == self.config.tags || self.up_free > limit {
                break;
            }
            let burst = &mut self.bursts[usize::from(slot)];
            let start = self.up_free.max(clock * CLOCK);
            self.up_free = start + REQUEST_OVERHEAD * self.per_byte;
            let ready = start / CLOCK + self.config.read_latency + burst.jitter;
            burst.ready[usize::from(burst.requests)] = ready;
            burst.requests += 1;
            burst.asked = (burst.asked / self.config.max_read_request + 1) * self.config.max_read_request;
            self.tags += 1;
            self.nothing_before = self.nothing_before.min(ready);
            if burst.asked >= burst.end {
                self.asking.pop_front();
            }
        }
    }

    /// Puts the next beat of read data on the port. Returns whether there is one.
    fn offer_read(&mut self, clock: u64, input: &mut AxiIn, memory: &mut Memory) -> Result<bool, Stray> {
        if self.down_free >= (clock + 1) * CLOCK {
            return Ok(false);
        }
        let Some(slot) = self.current.or_else(|| self.choose(clock)) else { return Ok(false) };
        self.current = Some(slot);
        let burst = &mut self.bursts[usize::from(slot)];
        if burst.done == burst.requests || burst.ready[usize::from(burst.done)] > clock {
            if self.tags == self.config.tags {
                // What it waits for may be a tag that another burst gives back.
                self.current = None;
            }
            return Ok(false);
        }
        if self.rng.percent(self.config.stall_percent) {
            return Ok(false);
        }
        let id = burst.id;
        let line = burst.at & !(LINE as u64 - 1);
        let skipped = (burst.at - line) as usize;
        let begins_tlp = burst.begins || burst.at % self.config.max_payload == 0;
        burst.begins = false;
        memory.read_line(line, &mut input.rdata).map_err(|at| Stray { at, id, is_write: false })?;
        let until = (burst.end - line).min(LINE as u64) as usize;
        input.rdata[..skipped].fill(crate::memory::POISON);
        input.rdata[until..].fill(crate::memory::POISON);
        // The link moves whole double words.
        let moved = (until.next_multiple_of(4) - skipped / 4 * 4) as u64;
        let bytes = moved + if begins_tlp { COMPLETION_OVERHEAD } else { 0 };
        self.down_free = self.down_free.max(clock * CLOCK) + bytes * self.per_byte;
        burst.at = line + until as u64;
        let is_last = burst.at == burst.end;
        (input.rid, input.rresp, input.rlast) = (id, 0, is_last);
        self.counts.read_beats += 1;
        if is_last || burst.at % self.config.max_read_request == 0 {
            burst.done += 1;
            burst.begins = true;
            self.tags -= 1;
            if is_last || self.config.interleave {
                self.current = None;
                self.nothing_before = 0;
            }
        }
        if is_last {
            self.spare.push(slot);
            let queue = &mut self.by_id[usize::from(id)];
            queue.pop_front();
            if queue.is_empty() {
                self.ids.retain(|&other| other != id);
            }
        }
        Ok(true)
    }

    /// Chooses a burst whose next data is there, among the oldest of each ID.
    fn choose(&mut self, clock: u64) -> Option<u16> {
        if self.ids.is_empty() || clock < self.nothing_before {
            return None;
        }
        let ready = |id: u8| {
            let slot = self.by_id[usize::from(id)][0];
            let burst = &self.bursts[usize::from(slot)];
            (slot, if burst.done < burst.requests { burst.ready[usize::from(burst.done)] } else { u64::MAX })
        };
        let (mut oldest, mut oldest_at, mut candidates) = (0, u64::MAX, 0);
        for (slot, at) in self.ids.iter().map(|&id| ready(id)) {
            if at < oldest_at {
                (oldest, oldest_at) = (slot, at);
            }
            candidates += u64::from(at <= clock);
        }
        if candidates == 0 {
            self.nothing_before = oldest_at;
            return None;
        }
        if candidates > 1 && self.rng.percent(REORDER_PERCENT) {
            let nth = self.rng.below(candidates) as usize;
            let ready = |id: u8| {
                let slot = self.by_id[usize::from(id)][0];
                let burst = &self.bursts[usize::from(slot)];
                (slot, burst.done < burst.requests && burst.ready[usize::from(burst.done)] <= clock)
            };
            return self.ids.iter().map(|&id| ready(id)).filter(|(_, is_ready)| *is_ready).nth(nth).map(|(slot, _)| slot);
        }
        Some(oldest)
    }

    fn take_beat(&mut self, clock: u64, output: &AxiOut) -> Result<(), String> {
        // `wready` is high only while a request is there.
        let Some(burst) = self.writes.front_mut() else { return Ok(()) };
        burst.beats -= 1;
        if output.wlast != (burst.beats == 0) {
            let place = if output.wlast { "too early" } else { "missing" };
            return Err(format!("wlast {place} in the write burst with ID {} at line {:#x}", burst.id, burst.line));
        }
        let mut bytes = 0;
        if output.wstrb != 0 {
            // The link moves whole double words.
            let first = u64::from(output.wstrb.trailing_zeros()) & !3;
            let end = (64 - u64::from(output.wstrb.leading_zeros())).next_multiple_of(4);
            bytes = end - first + if burst.is_first || burst.line % self.config.max_payload == 0 { REQUEST_OVERHEAD } else { 0 };
            burst.is_first = false;
        }
        self.up_free = self.up_free.max(clock * CLOCK) + bytes * self.per_byte;
        let visible = self.up_free / CLOCK + 1;
        self.posted.push_back(PostedBeat { line: burst.line, strobe: output.wstrb, id: burst.id, visible, data: output.wdata });
        burst.line += LINE as u64;
        self.counts.write_beats += 1;
        if output.wlast {
            self.answers.push_back((burst.id, visible + self.config.write_latency));
            self.writes.pop_front();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
