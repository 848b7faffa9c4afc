//! A card that expects an exact order of register accesses, and memory that anybody can see.

use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use verbena_abi::regs::{Doorbell, BAR0, DOORBELL_BASE, DOORBELL_PAGE};

use crate::device::{Bar, Device};
use crate::dma::DmaBuffer;
use crate::error::Error;
use crate::lock;

/// Bus address of the first buffer; the next ones follow, each at a multiple of its alignment.
pub const FIRST_IOVA: u64 = 0x1_0000_0000;

/// One access to a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RegisterAccess {
    /// A read, and what it gives.
    Read { offset: u32, gives: u32 },
    /// A write of a value.
    Write { offset: u32, value: u32 },
}

impl std::fmt::Display for RegisterAccess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Read { offset, .. } => write!(f, "read of {}", register_name(*offset)),
            Self::Write { offset, value } => write!(f, "write of {value:#010x} to {}", register_name(*offset)),
        }
    }
}

/// BAR0 of a mock: each access must be the next one that is expected.
#[derive(Debug, Default)]
pub struct MockBar {
    expected: Mutex<VecDeque<RegisterAccess>>,
    done: AtomicU32,
}

impl MockBar {
    fn expect(&self, access: RegisterAccess) -> &Self {
        lock(&self.expected).push_back(access);
        self
    }

    /// Expects a read of the register at `offset` next, and answers it with `value`.
    pub fn expect_read(&self, offset: u32, value: u32) -> &Self {
        self.expect(RegisterAccess::Read { offset, gives: value })
    }

    /// Expects a write of `value` to the register at `offset` next.
    pub fn expect_write(&self, offset: u32, value: u32) -> &Self {
        self.expect(RegisterAccess::Write { offset, value })
    }

    /// Checks that every access that was expected took place.
    ///
    /// # Panics
    /// If one did not, naming it.
    pub fn verify(&self) {
        let expected = lock(&self.expected);
        if let Some(next) = expected.front() {
            panic!("access {} did not take place: expected {next}, and {} more", self.number(), expected.len() - 1);
        }
    }

    fn number(&self) -> u32 {
        self.done.load(Ordering::Relaxed)
    }

    fn take(&self, actual: &str, fits: impl Fn(&RegisterAccess) -> bool) -> Option<RegisterAccess> {
        // A test that failed drops its objects, which talk to the card: that must not hide why it failed.
        if std::thread::panicking() {
            return None;
        }
        let next = lock(&self.expected).pop_front();
        match next {
            Some(expected) if fits(&expected) => {
                self.done.fetch_add(1, Ordering::Relaxed);
                Some(expected)
            }
            Some(expected) => panic!("access {}: expected {expected}, got {actual}", self.number()),
            None => panic!("access {}: expected none, got {actual}", self.number()),
        }
    }
}

impl Bar for MockBar {
    fn read32(&self, offset: u32) -> u32 {
        let actual = format!("read of {}", register_name(offset));
        let is_read = |expected: &RegisterAccess| matches!(expected, RegisterAccess::Read { offset: other, .. } if *other == offset);
        match self.take(&actual, is_read) {
            Some(RegisterAccess::Read { gives, .. }) => gives,
            _ => 0,
        }
    }

    fn write32(&self, offset: u32, value: u32) {
        let access = RegisterAccess::Write { offset, value };
        self.take(&access.to_string(), |expected| *expected == access);
    }
}

/// A card made of expectations. Memory comes from the heap, interrupts from the test.
#[derive(Debug)]
pub struct MockDevice {
    bar: MockBar,
    next_iova: AtomicU64,
    interrupts: AtomicU32,
    waits: AtomicU32,
    buffers: Mutex<Vec<DmaBuffer>>,
}

impl MockDevice {
    /// Returns a mock that expects nothing yet.
    pub fn new() -> Arc<Self> {
        Arc::new(Self {
            bar: MockBar::default(),
            next_iova: AtomicU64::new(FIRST_IOVA),
            interrupts: AtomicU32::new(0),
            waits: AtomicU32::new(0),
            buffers: Mutex::default(),
        })
    }

    /// Returns BAR0, to be told what to expect.
    pub fn mock_bar(&self) -> &MockBar {
        &self.bar
    }

    /// Raises a vector, to be seen by the next [`Device::take_interrupts`].
    pub fn raise(&self, vector: u32) {
        self.interrupts.fetch_or(1u32.checked_shl(vector).unwrap_or(0), Ordering::AcqRel);
    }

    /// Returns how often the driver waited.
    pub fn waits(&self) -> u32 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Returns the memory that the driver got so far, in order: the mock plays the card with it.
    pub fn buffers(&self) -> Vec<DmaBuffer> {
        lock(&self.buffers).clone()
    }

    /// Returns the bus address that the next buffer of `len` bytes will have.
    fn place(&self, len: usize, align: usize) -> u64 {
        let align = align.max(64) as u64;
        let mut place = 0;
        // The closure gives a value in any case, so the update cannot fail.
        let _ = self.next_iova.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |next| {
            place = next.next_multiple_of(align);
            Some(place + (len as u64).next_multiple_of(64))
        });
        place
    }
}

impl Device for MockDevice {
    fn bar(&self) -> &dyn Bar {
        &self.bar
    }

    fn alloc(self: Arc<Self>, len: usize, align: usize) -> Result<DmaBuffer, Error> {
        let buffer = DmaBuffer::on_heap(len, align, self.place(len, align))?;
        lock(&self.buffers).push(buffer.clone());
        Ok(buffer)
    }

    #[expect(unsafe_code, reason = "the trait's method is unsafe; this one does nothing with the memory")]
    unsafe fn map(&self, _ptr: NonNull<u8>, len: usize) -> Result<u64, Error> {
        Ok(self.place(len, 4096))
    }

    fn unmap(&self, _iova: u64, _len: usize) {}

    fn take_interrupts(&self) -> u32 {
        self.interrupts.swap(0, Ordering::AcqRel)
    }

    fn wait(&self) {
        self.waits.fetch_add(1, Ordering::Relaxed);
    }
}

/// Returns the name of the register at `offset`, as the documentation has it.
pub fn register_name(offset: u32) -> String {
    if offset >= DOORBELL_BASE {
        let (page, rest) = ((offset - DOORBELL_BASE) / DOORBELL_PAGE, (offset - DOORBELL_BASE) % DOORBELL_PAGE);
        let words = [Doorbell::Sq, Doorbell::Rq, Doorbell::CqConsumer, Doorbell::CqArm, Doorbell::CqModeration];
        return match words.iter().find(|word| **word as u32 == rest) {
            Some(word) => format!("doorbell {word:?} of queue {page} ({offset:#x})"),
            None => format!("doorbell page {page}, byte {rest:#x} ({offset:#x})"),
        };
    }
    match BAR0.iter().find(|register| (register.offset..register.offset + 4 * register.count).contains(&offset)) {
        Some(register) if register.count == 1 => format!("{} ({offset:#x})", register.name),
        Some(register) => format!("{}[{}] ({offset:#x})", register.name, (offset - register.offset) / 4),
        None => format!("no register ({offset:#x})"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use verbena_abi::regs::{CmdArgs, Id, MacLo};

    #[test]
    #[should_panic(expected = "access 1: expected write of 0x00000001 to MacLo (0x80), got read of CmdArgs[3] (0x100c)")]
    fn a_wrong_access_is_named_with_the_one_that_was_expected() {
        let bar = MockBar::default();
        bar.expect_read(Id::OFFSET, 7).expect_write(MacLo::OFFSET, 1);
        assert_eq!(bar.read32(Id::OFFSET), 7);
        bar.read32(CmdArgs::OFFSET + 12);
    }

    #[test]
    #[should_panic(expected = "access 0: expected none, got write of 0x00000005 to doorbell Sq of queue 3 (0x13000)")]
    fn an_access_too_many_is_named() {
        MockBar::default().write32(Doorbell::Sq.offset(3), 5);
    }

    #[test]
    #[should_panic(expected = "access 0 did not take place: expected read of Id (0x0), and 0 more")]
    fn a_missing_access_is_named() {
        let bar = MockBar::default();
        bar.expect_read(Id::OFFSET, 0);
        bar.verify();
    }
}
