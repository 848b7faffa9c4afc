//! A 100 Gb/s Ethernet link with the MAC at each end.
//!
//! Times on the wire are counted in bytes: 50 a clock. A frame takes its length, padded to 60, and
//! [`WIRE_OVERHEAD`]. The sender's MAC takes beats into a small FIFO and stops them by `tready` when
//! it is full, so that frames follow each other at the wire's rate and no faster. The receiver's MAC
//! hands beats on as they arrive, and never waits: what its FIFO can't hold is dropped and counted.
//!
//! A frame is passed on as a whole, when its last beat is in, together with the time at which its
//! first byte arrives. [`LinkConfig::look_ahead_clocks`] says how early that is, which is how far one
//! card may run ahead of the other.

use std::collections::VecDeque;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use verbena_abi::limits::{BEAT_BYTES, CLOCK_KHZ, MAX_MTU};
use verbena_abi::wire::{write_payload, ICRC_BYTES, MAX_HEADERS, MIN_FRAME, WIRE_OVERHEAD};

use crate::ffi::Beat;
use crate::rng::Rng;

/// Bytes that the wire moves in a clock.
pub const BYTES_PER_CLOCK: u64 = 12_500_000_000 / (CLOCK_KHZ as u64 * 1000);

/// Longest frame that a card may send.
pub const MAX_FRAME: usize = MAX_HEADERS + MAX_MTU + ICRC_BYTES;
/// Clocks that the longest frame takes on the wire.
const MAX_FRAME_CLOCKS: u64 = ((MAX_FRAME + WIRE_OVERHEAD) as u64).div_ceil(BYTES_PER_CLOCK);
/// Bytes of preamble, in front of a frame.
const PREAMBLE: u64 = 8;
/// Bytes that wait in the sender's MAC before `tready` falls.
const TX_FIFO: u64 = 512;
/// Bytes that wait in the receiver's MAC before it drops.
const RX_FIFO: u64 = 16_384;

/// A link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkConfig {
    /// Clocks from a byte at the sender's MAC to the same byte at the receiver's.
    pub latency: u64,
    /// Of a hundred clocks, so many in which a MAC pauses by chance.
    pub stall_percent: u8,
    /// Of a million frames, so many that get lost.
    pub loss_ppm: u32,
    /// Of a million frames, so many that arrive twice.
    pub duplicate_ppm: u32,
    /// Of a million frames, so many that a later one overtakes.
    pub reorder_ppm: u32,
    /// Of a million frames, so many of which a bit is flipped.
    pub corrupt_ppm: u32,
}

impl Default for LinkConfig {
    /// 500 ns, and nothing goes wrong.
    fn default() -> Self {
        Self { latency: 125, stall_percent: 0, loss_ppm: 0, duplicate_ppm: 0, reorder_ppm: 0, corrupt_ppm: 0 }
    }
}

impl LinkConfig {
    /// Returns how many clocks lie at least between a frame's last beat at the sender and its first at the receiver.
    pub fn look_ahead_clocks(&self) -> u64 {
        self.latency.saturating_sub(MAX_FRAME_CLOCKS).max(1)
    }
}

/// A frame on the wire.
#[derive(Debug)]
struct Frame {
    bytes: Vec<u8>,
    /// When the first byte reaches the receiver's MAC.
    arrival: u64,
    /// The sender marked it bad.
    is_bad: bool,
}

/// One direction of a link: frames under way.
#[derive(Debug, Default)]
pub struct Wire {
    queue: Mutex<Frames>,
    /// Frames in the queue, so that an idle receiver need not lock.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct Frames {
    under_way: VecDeque<Frame>,
    /// Buffers to be used again.
    spare: Vec<Vec<u8>>,
}

impl Wire {
    fn push(&self, frame: Frame) {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.under_way.push_back(frame);
        self.waiting.store(queue.under_way.len(), Ordering::Release);
    }

    fn pop(&self) -> Option<Frame> {
        if self.waiting.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        let frame = queue.under_way.pop_front();
        self.waiting.store(queue.under_way.len(), Ordering::Release);
        frame
    }

    fn buffer(&self) -> Vec<u8> {
        let mut queue = self.queue.lock().unwrap_or_else(PoisonError::into_inner);
        queue.spare.pop().unwrap_or_else(|| Vec::with_capacity(MAX_FRAME + BEAT_BYTES))
    }

    fn give_back(&self, mut bytes: Vec<u8>) {
        bytes.clear();
        self.queue.lock().unwrap_or_else(PoisonError::into_inner).spare.push(bytes);
    }
}

/// What passed a MAC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MacCounts {
    /// Frames.
    pub frames: u64,
    /// Bytes of them, without padding and FCS.
    pub bytes: u64,
    /// Bytes of message data in RDMA WRITEs among them. The receiver counts.
    pub payload: u64,
    /// Frames lost: on the wire, by chance or chosen (sender), for want of room (receiver).
    pub dropped: u64,
}

/// A sent frame, as the capture sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// When its first byte was on the wire, in byte times.
    pub start: u64,
    /// The frame, without FCS.
    pub bytes: Vec<u8>,
}

/// Says whether a frame gets lost.
type IsLost = dyn FnMut(&[u8]) -> bool + Send;

/// Which frames get lost, beside those that do by chance: asked once for each frame, in their order.
pub struct Loss(Box<IsLost>);

impl Loss {
    /// Returns what loses the frames for which `is_lost` says so.
    pub fn new(is_lost: impl FnMut(&[u8]) -> bool + Send + 'static) -> Self {
        Self(Box::new(is_lost))
    }
}

impl fmt::Debug for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Loss")
    }
}

/// The sending half of a MAC: the slave of the card's `m_axis_tx`.
#[derive(Debug)]
pub struct MacTx {
    config: LinkConfig,
    wire: Arc<Wire>,
    rng: Rng,
    counts: MacCounts,
    /// When the wire is free of what was taken so far.
    free: u64,
    /// When the frame in hand began.
    start: u64,
    bytes: Vec<u8>,
    in_frame: bool,
    held: Option<Beat>,
    /// A frame that the next one overtakes.
    overtaken: Option<Frame>,
    captured: Option<Vec<Captured>>,
    loss: Option<Loss>,
}

impl MacTx {
    /// Returns the sender of `wire`.
    pub fn new(config: LinkConfig, wire: Arc<Wire>, rng: Rng) -> Self {
        let bytes = wire.buffer();
        let counts = MacCounts::default();
        Self {
            config,
            wire,
            rng,
            counts,
            free: 0,
            start: 0,
            bytes,
            in_frame: false,
            held: None,
            overtaken: None,
            captured: None,
            loss: None,
        }
    }

    /// Loses the frames that `loss` names from now on, or no more of them.
    pub fn lose(&mut self, loss: Option<Loss>) {
        self.loss = loss;
    }

    /// Keeps a copy of all frames from now on, for [`MacTx::take_captured`].
    pub fn capture(&mut self) {
        self.captured = Some(Vec::new());
    }

    /// Returns the frames kept since the last call, and a time before which no other one will have started.
    pub fn take_captured(&mut self, clock: u64) -> (Vec<Captured>, u64) {
        let horizon = if self.in_frame { self.start } else { self.free.max(clock * BYTES_PER_CLOCK) };
        (self.captured.as_mut().map(std::mem::take).unwrap_or_default(), horizon)
    }

    /// Returns what was sent.
    pub fn counts(&self) -> MacCounts {
        self.counts
    }

    /// Returns `tready` of this clock.
    pub fn drive(&mut self, clock: u64) -> bool {
        self.free < clock * BYTES_PER_CLOCK + TX_FIFO && !self.rng.percent(self.config.stall_percent)
    }

    /// Takes what the card's beat and our `ready` of this clock agreed on. Fails, saying what is
    /// broken, on a gap in a frame, a beat that changes while it waits, a wrong `tkeep`, a frame too long.
    pub fn sample(&mut self, clock: u64, beat: &Beat, ready: bool) -> Result<(), String> {
        if let Some(held) = self.held.take() {
            let same = beat.valid && (beat.keep, beat.last, beat.user, beat.data) == (held.keep, held.last, held.user, held.data);
            if !same {
                return Err("m_axis_tx changed, or tvalid fell, while tready was low".into());
            }
        }
        if !beat.valid {
            return if self.in_frame && ready { Err("m_axis_tx_tvalid fell within a frame".into()) } else { Ok(()) };
        }
        if !ready {
            self.held = Some(*beat);
            return Ok(());
        }
        let len = beat.keep.trailing_ones() as usize;
        if len == 0 || (len != BEAT_BYTES && (!beat.last || beat.keep >> len != 0)) {
            return Err(format!("m_axis_tx_tkeep is {:#x} with tlast {}", beat.keep, beat.last));
        }
        let now = clock * BYTES_PER_CLOCK;
        if !self.in_frame {
            self.in_frame = true;
            self.start = self.free.max(now) + PREAMBLE;
        }
        self.bytes.extend_from_slice(&beat.data[..len]);
        if self.bytes.len() > MAX_FRAME {
            return Err(format!("frame longer than {MAX_FRAME} bytes"));
        }
        self.free = self.start + self.bytes.len() as u64;
        if beat.last {
            self.in_frame = false;
            self.free = self.start - PREAMBLE + (self.bytes.len().max(MIN_FRAME) + WIRE_OVERHEAD) as u64;
            self.send(clock, beat.user);
        }
        Ok(())
    }

    fn send(&mut self, clock: u64, is_bad: bool) {
        if let Some(captured) = &mut self.captured {
            captured.push(Captured { start: self.start, bytes: self.bytes.clone() });
        }
        self.counts.frames += 1;
        self.counts.bytes += self.bytes.len() as u64;
        // The first byte may have left long ago if the card or a pause stretched the frame; the
        // receiver must still hear of it early enough.
        let earliest = (clock + self.config.look_ahead_clocks()) * BYTES_PER_CLOCK;
        let arrival = (self.start + self.config.latency * BYTES_PER_CLOCK).max(earliest);
        let bytes = std::mem::replace(&mut self.bytes, self.wire.buffer());
        self.pass_on(Frame { bytes, arrival, is_bad });
    }

    /// Puts the frame on the wire, with what chance does to it.
    fn pass_on(&mut self, mut frame: Frame) {
        let mut happens = |ppm: u32| ppm != 0 && self.rng.below(1_000_000) < u64::from(ppm);
        let is_chosen = self.loss.as_mut().is_some_and(|loss| (loss.0)(&frame.bytes));
        if is_chosen || happens(self.config.loss_ppm) {
            self.counts.dropped += 1;
            return self.wire.give_back(frame.bytes);
        }
        let (is_twice, is_late) = (happens(self.config.duplicate_ppm), happens(self.config.reorder_ppm));
        if happens(self.config.corrupt_ppm) && !frame.bytes.is_empty() {
            let bit = self.rng.below(8 * frame.bytes.len() as u64) as usize;
            frame.bytes[bit / 8] ^= 1 << (bit % 8);
        }
        let overtaken = self.overtaken.take();
        let arrival = frame.arrival;
        if is_twice {
            self.wire.push(Frame { bytes: frame.bytes.clone(), ..frame });
        }
        if is_late && overtaken.is_none() {
            self.overtaken = Some(frame);
        } else {
            self.wire.push(frame);
        }
        if let Some(late) = overtaken {
            self.wire.push(Frame { arrival, ..late });
        }
    }
}

/// The receiving half of a MAC: the master of the card's `s_axis_rx`.
#[derive(Debug)]
pub struct MacRx {
    stall_percent: u8,
    wire: Arc<Wire>,
    rng: Rng,
    counts: MacCounts,
    frame: Option<Frame>,
    /// Bytes of the frame that were handed on, and whether it was decided to keep it.
    done: usize,
    is_kept: bool,
}

impl MacRx {
    /// Returns the receiver of `wire`.
    pub fn new(config: LinkConfig, wire: Arc<Wire>, rng: Rng) -> Self {
        Self { stall_percent: config.stall_percent, wire, rng, counts: MacCounts::default(), frame: None, done: 0, is_kept: false }
    }

    /// Returns what was received.
    pub fn counts(&self) -> MacCounts {
        self.counts
    }

    /// Sets the card's inputs of this clock.
    pub fn drive(&mut self, clock: u64, beat: &mut Beat) {
        if beat.valid {
            return;
        }
        let now = (clock + 1) * BYTES_PER_CLOCK - 1;
        let frame = loop {
            if self.frame.is_none() {
                self.frame = self.wire.pop();
                (self.done, self.is_kept) = (0, false);
            }
            match &mut self.frame {
                None => return,
                Some(frame) if frame.arrival + self.done as u64 > now => return,
                // With random pauses it is the MAC that is slow, not the card, so nothing is dropped.
                Some(frame) if self.is_kept || self.stall_percent != 0 || now - frame.arrival <= RX_FIFO => break frame,
                Some(frame) => {
                    self.counts.dropped += 1;
                    self.wire.give_back(std::mem::take(&mut frame.bytes));
                    self.frame = None;
                }
            }
        };
        if self.rng.percent(self.stall_percent) {
            return;
        }
        if !self.is_kept {
            self.is_kept = true;
            self.counts.frames += 1;
            self.counts.bytes += frame.bytes.len() as u64;
            self.counts.payload += write_payload(&frame.bytes).unwrap_or(0) as u64;
            if frame.bytes.len() < MIN_FRAME {
                frame.bytes.resize(MIN_FRAME, 0);
            }
        }
        let rest = &frame.bytes[self.done..];
        let len = rest.len().min(BEAT_BYTES);
        beat.data[..len].copy_from_slice(&rest[..len]);
        beat.keep = u64::MAX >> (BEAT_BYTES - len);
        beat.last = len == rest.len();
        beat.user = beat.last && frame.is_bad;
        beat.valid = true;
        self.done += len;
        if beat.last {
            self.wire.give_back(std::mem::take(&mut frame.bytes));
            self.frame = None;
        }
    }

    /// Takes the card's `tready` of this clock.
    pub fn sample(&mut self, beat: &mut Beat, ready: bool) {
        beat.valid &= !ready;
    }
}

#[cfg(test)]
mod tests;
