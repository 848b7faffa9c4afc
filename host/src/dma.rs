//! Memory that card and driver share.
//!
//! The card may write such memory at any time, so there are no references to it: every access
//! copies. Accesses are relaxed atomics of up to eight bytes, not volatile ones, for two reasons:
//! threads of one process (a simulated card is one) may touch the same bytes without a data race,
//! and only an atomic read can be ordered by an acquire fence. An aligned access of one, two, four or
//! eight bytes is one instruction, hence never torn; order between accesses comes from the caller's fences.

use std::alloc::{alloc_zeroed, dealloc, Layout};
use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, AtomicU8, Ordering};
use std::sync::Arc;

use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::device::Device;
use crate::error::Error;

/// A range of memory that the card reaches under a bus address.
///
/// Clones and parts share the memory; the last one frees or unmaps it.
#[derive(Clone)]
pub struct DmaBuffer {
    ptr: NonNull<u8>,
    len: usize,
    iova: u64,
    owner: Arc<dyn Any + Send + Sync>,
}

// SAFETY: the pointer is valid in every thread while `owner` lives (contract of `from_parts`), and all accesses
// through this type are atomic, so sharing and sending add no data race.
unsafe impl Send for DmaBuffer {}
// SAFETY: as above.
unsafe impl Sync for DmaBuffer {}

impl DmaBuffer {
    /// Makes a buffer of its parts. Backends use it.
    ///
    /// # Safety
    /// While `owner` lives, `len` bytes at `ptr` must be valid for reads and writes of any thread, be initialised,
    /// and be touched by nothing but atomic accesses and the card; `iova` must be what the card calls the first byte.
    pub unsafe fn from_parts(ptr: NonNull<u8>, len: usize, iova: u64, owner: Arc<dyn Any + Send + Sync>) -> Self {
        Self { ptr, len, iova, owner }
    }

    /// Allocates zeroed process memory that claims the bus address `iova`.
    ///
    /// For backends whose card is in the same process and finds memory by itself. `align` is a
    /// power of two. Fails with [`Error::OutOfMemory`], also when `len` is 0.
    pub fn on_heap(len: usize, align: usize, iova: u64) -> Result<Self, Error> {
        let heap = Arc::new(HeapMemory::new(len, align)?);
        let ptr = heap.ptr;
        // SAFETY: `heap` owns `len` zeroed bytes at `ptr` and frees them when dropped, which is when the last
        // clone of the buffer is; nobody else has the pointer.
        Ok(unsafe { Self::from_parts(ptr, len, iova, heap) })
    }

    /// Makes memory of the caller reachable for the card, until the last clone of the buffer is dropped.
    ///
    /// # Safety
    /// As [`Device::map`]: the memory must stay valid, and be touched by atomic accesses and the card alone, until then.
    pub unsafe fn map(device: Arc<dyn Device>, ptr: NonNull<u8>, len: usize) -> Result<Self, Error> {
        // SAFETY: the caller vouches for the memory.
        let iova = unsafe { device.map(ptr, len)? };
        let owner = Arc::new(Mapping { device, iova, len, is_for_good: AtomicBool::new(false) });
        // SAFETY: the caller vouches for the memory until `owner`, which takes the mapping back, is dropped.
        Ok(unsafe { Self::from_parts(ptr, len, iova, owner) })
    }

    /// Returns the size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Tells whether the buffer has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bus address of the first byte.
    pub fn iova(&self) -> u64 {
        self.iova
    }

    /// Returns the process address of the first byte, as a number: what consumers use as virtual address.
    pub fn va(&self) -> u64 {
        self.ptr.as_ptr() as usize as u64
    }

    /// Returns the process address of the first byte, for backends.
    pub fn as_ptr(&self) -> NonNull<u8> {
        self.ptr
    }

    /// Has a mapping of the caller's memory taken back without its bus addresses being used again, when that is: the card may still use
    /// them. Returns false for memory that is no mapping of [`DmaBuffer::map`].
    pub(crate) fn never_reuse_addresses(&self) -> bool {
        let mapping = self.owner.downcast_ref::<Mapping>();
        mapping.inspect(|mapping| mapping.is_for_good.store(true, Ordering::Relaxed)).is_some()
    }

    /// Returns how many buffers share the memory, this one included.
    pub fn holders(&self) -> usize {
        Arc::strong_count(&self.owner)
    }

    /// Returns `len` bytes from `offset` as a buffer that shares the memory, or [`Error::OutOfBounds`].
    pub fn part(&self, offset: usize, len: usize) -> Result<Self, Error> {
        let ptr = self.at(offset, len)?;
        Ok(Self { ptr, len, iova: self.iova.wrapping_add(offset as u64), owner: Arc::clone(&self.owner) })
    }

    /// Returns a copy of the value at `offset`, or [`Error::OutOfBounds`].
    #[inline]
    pub fn read<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T, Error> {
        let mut value = <T as FromZeros>::new_zeroed();
        self.copy_out(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Writes a value at `offset`, or fails with [`Error::OutOfBounds`] and writes nothing.
    #[inline]
    pub fn write<T: IntoBytes + Immutable>(&self, offset: usize, value: &T) -> Result<(), Error> {
        self.copy_in(offset, value.as_bytes())
    }

    /// Copies bytes out of the buffer, or fails with [`Error::OutOfBounds`].
    #[inline]
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) -> Result<(), Error> {
        let from = self.at(offset, to.len())?.as_ptr();
        // SAFETY: `at` checked that as many bytes at `from` are inside the buffer; aligned as the function wants it.
        unsafe {
            if from as usize % 8 == 0 {
                load_aligned(from, to);
            } else {
                load_pieces(from, to);
            }
        }
        Ok(())
    }

    /// Copies bytes into the buffer, or fails with [`Error::OutOfBounds`] and copies nothing.
    #[inline]
    pub fn copy_in(&self, offset: usize, from: &[u8]) -> Result<(), Error> {
        let to = self.at(offset, from.len())?.as_ptr();
        // SAFETY: as in `copy_out`.
        unsafe {
            if to as usize % 8 == 0 {
                store_aligned(to, from);
            } else {
                store_pieces(to, from);
            }
        }
        Ok(())
    }

    /// Sets `len` bytes from `offset` to `value`, or fails with [`Error::OutOfBounds`].
    pub fn fill(&self, offset: usize, len: usize, value: u8) -> Result<(), Error> {
        self.at(offset, len)?;
        let block = [value; 256];
        for start in (0..len).step_by(block.len()) {
            self.copy_in(offset + start, &block[..block.len().min(len - start)])?;
        }
        Ok(())
    }

    /// Returns a copy of all bytes.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        // The range is the whole buffer, so there is nothing that could fail.
        let _ = self.copy_out(0, &mut bytes);
        bytes
    }

    /// Returns the address of byte `offset`, checked for `len` bytes.
    #[inline]
    fn at(&self, offset: usize, len: usize) -> Result<NonNull<u8>, Error> {
        if self.len.checked_sub(len).is_none_or(|last| offset > last) {
            return Err(Error::OutOfBounds { offset, len_bytes: len, size_bytes: self.len });
        }
        // SAFETY: `offset` is at most the length of the memory that `owner` keeps valid.
        Ok(unsafe { self.ptr.add(offset) })
    }
}

impl fmt::Debug for DmaBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DmaBuffer({} bytes at {:#x})", self.len, self.iova)
    }
}

/// A buffer as an array of units of `WORDS` words of eight bytes each: the entries of a queue.
///
/// Size and alignment are checked once, so that an access is one comparison and a load or store for each word.
#[derive(Clone, Debug)]
pub struct Units<const WORDS: usize> {
    buffer: DmaBuffer,
    count: usize,
}

impl<const WORDS: usize> Units<WORDS> {
    /// Bytes of a unit.
    pub const BYTES: usize = WORDS * 8;

    /// Makes units of a buffer; what is left behind the last whole one stays unused. Fails with [`Error::OutOfMemory`] if it is not aligned for words.
    pub fn new(buffer: DmaBuffer) -> Result<Self, Error> {
        if buffer.ptr.as_ptr() as usize % align_of::<u64>() != 0 {
            return Err(Error::OutOfMemory { len_bytes: buffer.len, align: align_of::<u64>() });
        }
        Ok(Self { count: buffer.len / Self::BYTES, buffer })
    }

    /// Returns the buffer.
    pub fn buffer(&self) -> &DmaBuffer {
        &self.buffer
    }

    /// Writes a unit, or fails with [`Error::OutOfBounds`] and writes nothing. The words come by value: a caller who has just made them
    /// keeps them in registers.
    #[inline]
    pub fn write(&self, unit: usize, words: [u64; WORDS]) -> Result<(), Error> {
        self.check(unit)?;
        for (index, word) in words.into_iter().enumerate() {
            // SAFETY: the unit was checked, and this is a word of it.
            unsafe { self.word(unit, index) }.store(word, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Returns the words of a unit, or [`Error::OutOfBounds`].
    #[inline]
    pub fn read_words(&self, unit: usize) -> Result<[u64; WORDS], Error> {
        self.check(unit)?;
        // SAFETY: the unit was checked, and these are its words.
        Ok(std::array::from_fn(|index| unsafe { self.word(unit, index) }.load(Ordering::Relaxed)))
    }

    /// Returns the last word of a unit, or [`Error::OutOfBounds`].
    #[inline]
    pub fn read_last_word(&self, unit: usize) -> Result<u64, Error> {
        self.check(unit)?;
        // SAFETY: the unit was checked, and this is a word of it.
        Ok(unsafe { self.word(unit, WORDS - 1) }.load(Ordering::Relaxed))
    }

    /// Returns the first half of the first word of a unit, or [`Error::OutOfBounds`].
    pub fn read_first_half(&self, unit: usize) -> Result<u32, Error> {
        self.check(unit)?;
        // SAFETY: the unit was checked; its first bytes are aligned for more than this.
        let half = unsafe { AtomicU32::from_ptr(self.buffer.ptr.as_ptr().add(unit * Self::BYTES).cast()) };
        Ok(half.load(Ordering::Relaxed))
    }

    #[inline]
    fn check(&self, unit: usize) -> Result<(), Error> {
        if unit < self.count {
            return Ok(());
        }
        Err(Error::OutOfBounds { offset: unit.saturating_mul(Self::BYTES), len_bytes: Self::BYTES, size_bytes: self.buffer.len })
    }

    /// # Safety
    /// `unit` is below `count`, and `index` below `WORDS`.
    #[inline]
    unsafe fn word(&self, unit: usize, index: usize) -> &AtomicU64 {
        // SAFETY: the buffer has `count` units and begins at a multiple of eight; it lives at least as long as the borrow of its owner.
        unsafe { AtomicU64::from_ptr(self.buffer.ptr.as_ptr().add(unit * Self::BYTES + index * 8).cast()) }
    }
}

/// Returns the bytes of the next access at `address` with `left` bytes to go: the widest aligned one.
fn step(address: usize, left: usize) -> usize {
    [8, 4, 2].into_iter().find(|step| address % step == 0 && left >= *step).unwrap_or(1)
}

/// Copies to `to` from shared memory, a word at a time, and what is left in pieces.
///
/// # Safety
/// As many bytes at `from` are valid for atomic reads, and `from` is a multiple of eight.
#[inline]
unsafe fn load_aligned(from: *mut u8, to: &mut [u8]) {
    let mut words = to.chunks_exact_mut(8);
    let mut place = from;
    for word in &mut words {
        // SAFETY: the caller vouches for eight bytes for each eight of `to`, and steps of eight keep the alignment.
        unsafe {
            word.copy_from_slice(&AtomicU64::from_ptr(place.cast()).load(Ordering::Relaxed).to_ne_bytes());
            place = place.add(8);
        }
    }
    let rest = words.into_remainder();
    if !rest.is_empty() {
        // SAFETY: what is left of `to` is left of the range.
        unsafe { load_pieces(place, rest) };
    }
}

/// Copies to `to` from shared memory, with the widest accesses that are aligned.
///
/// # Safety
/// As many bytes at `from` are valid for atomic reads.
#[cold]
unsafe fn load_pieces(from: *mut u8, mut to: &mut [u8]) {
    let mut place = from;
    while !to.is_empty() {
        let step = step(place as usize, to.len());
        let (piece, rest) = to.split_at_mut(step);
        // SAFETY: `step` bytes at `place` are in the range, and `place` is a multiple of it.
        unsafe {
            match step {
                8 => piece.copy_from_slice(&AtomicU64::from_ptr(place.cast()).load(Ordering::Relaxed).to_ne_bytes()),
                4 => piece.copy_from_slice(&AtomicU32::from_ptr(place.cast()).load(Ordering::Relaxed).to_ne_bytes()),
                2 => piece.copy_from_slice(&AtomicU16::from_ptr(place.cast()).load(Ordering::Relaxed).to_ne_bytes()),
                _ => piece.copy_from_slice(&[AtomicU8::from_ptr(place).load(Ordering::Relaxed)]),
            }
            place = place.add(step);
        }
        to = rest;
    }
}

/// Copies `from` to shared memory, a word at a time, and what is left in pieces.
///
/// # Safety
/// As many bytes at `to` are valid for atomic writes, and `to` is a multiple of eight.
#[inline]
unsafe fn store_aligned(to: *mut u8, from: &[u8]) {
    let mut rest = from;
    let mut place = to;
    while let Some((word, behind)) = rest.split_first_chunk::<8>() {
        // SAFETY: as in `load_aligned`.
        unsafe {
            AtomicU64::from_ptr(place.cast()).store(u64::from_ne_bytes(*word), Ordering::Relaxed);
            place = place.add(8);
        }
        rest = behind;
    }
    if !rest.is_empty() {
        // SAFETY: as in `load_aligned`.
        unsafe { store_pieces(place, rest) };
    }
}

/// Copies `from` to shared memory, with the widest accesses that are aligned.
///
/// # Safety
/// As many bytes at `to` are valid for atomic writes.
#[cold]
unsafe fn store_pieces(to: *mut u8, mut from: &[u8]) {
    let mut place = to;
    while !from.is_empty() {
        let (piece, rest) = from.split_at(step(place as usize, from.len()));
        // SAFETY: the piece is in the range, and `place` is a multiple of its length.
        unsafe {
            match *piece {
                [a, b, c, d, e, f, g, h] => {
                    AtomicU64::from_ptr(place.cast()).store(u64::from_ne_bytes([a, b, c, d, e, f, g, h]), Ordering::Relaxed);
                }
                [a, b, c, d] => AtomicU32::from_ptr(place.cast()).store(u32::from_ne_bytes([a, b, c, d]), Ordering::Relaxed),
                [a, b] => AtomicU16::from_ptr(place.cast()).store(u16::from_ne_bytes([a, b]), Ordering::Relaxed),
                _ => AtomicU8::from_ptr(place).store(piece[0], Ordering::Relaxed),
            }
            place = place.add(piece.len());
        }
        from = rest;
    }
}

/// Zeroed memory of this process.
pub(crate) struct HeapMemory {
    pub(crate) ptr: NonNull<u8>,
    layout: Layout,
}

// SAFETY: the memory belongs to this value alone and is freed by whichever thread drops it.
unsafe impl Send for HeapMemory {}
// SAFETY: a shared reference gives nothing but the address.
unsafe impl Sync for HeapMemory {}

impl HeapMemory {
    pub(crate) fn new(len: usize, align: usize) -> Result<Self, Error> {
        let none = Error::OutOfMemory { len_bytes: len, align };
        let Some(layout) = Layout::from_size_align(len, align.max(8)).ok().filter(|layout| layout.size() > 0) else {
            return Err(none);
        };
        // SAFETY: the layout's size is not zero.
        let ptr = NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or(none)?;
        Ok(Self { ptr, layout })
    }
}

impl Drop for HeapMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `new` with this layout, and freed once.
        unsafe { dealloc(self.ptr.as_ptr(), self.layout) }
    }
}

/// A mapping that is taken back when dropped.
struct Mapping {
    device: Arc<dyn Device>,
    iova: u64,
    len: usize,
    is_for_good: AtomicBool,
}

impl Drop for Mapping {
    fn drop(&mut self) {
        if *self.is_for_good.get_mut() {
            self.device.unmap_for_good(self.iova, self.len);
        } else {
            self.device.unmap(self.iova, self.len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use verbena_abi::queue::Cqe;
    use zerocopy::little_endian::U32;

    #[test]
    fn an_entry_comes_back_as_it_was_written() {
        let buffer = DmaBuffer::on_heap(64, 64, 0x1000).unwrap();
        let cqe = Cqe { qpn: 7.into(), wqe_index: 9.into(), phase: 1, ..Default::default() };
        buffer.write(32, &cqe).unwrap();
        assert_eq!(buffer.read::<Cqe>(32).unwrap(), cqe);
        assert_eq!(buffer.read::<U32>(32).unwrap().get(), 7);
        assert_eq!(buffer.read::<Cqe>(0).unwrap(), Cqe::default());
    }

    #[test]
    fn an_access_outside_names_range_and_size() {
        let buffer = DmaBuffer::on_heap(64, 64, 0).unwrap();
        assert_eq!(buffer.read::<Cqe>(33).unwrap_err().to_string(), "bytes 33 to 33 + 32 are outside a buffer of 64 bytes");
        assert!(buffer.copy_in(usize::MAX, &[1]).is_err());
        assert!(buffer.copy_out(64, &mut []).is_ok());
        assert!(buffer.part(60, 5).is_err());
        assert!(buffer.fill(1, 64, 0).is_err());
    }

    #[test]
    fn a_part_keeps_the_memory_and_moves_the_address() {
        let buffer = DmaBuffer::on_heap(128, 64, 0x4000).unwrap();
        let part = buffer.part(40, 16).unwrap();
        drop(buffer);
        part.write(0, &[0xA5u8; 16]).unwrap();
        assert_eq!((part.iova(), part.to_vec()), (0x4028, vec![0xA5; 16]));
    }

    #[test]
    fn a_unit_is_written_whole_and_alone() {
        let units = Units::<8>::new(DmaBuffer::on_heap(3 * 64 + 8, 64, 0).unwrap()).unwrap();
        units.buffer().fill(0, 3 * 64 + 8, 0xEE).unwrap();
        let words: [u64; 8] = std::array::from_fn(|index| index as u64 + 1);
        units.write(1, words).unwrap();
        let bytes = units.buffer().to_vec();
        assert!(bytes[..64].iter().chain(&bytes[128..]).all(|byte| *byte == 0xEE));
        assert_eq!((&bytes[64..128], units.read_words(1).unwrap()), (words.as_bytes(), words));
        assert_eq!(units.write(3, words).unwrap_err().to_string(), "bytes 192 to 192 + 64 are outside a buffer of 200 bytes");
        assert_eq!((units.read_first_half(1).unwrap(), units.read_last_word(1).unwrap()), (1, 8));
        for beyond in [3, usize::MAX] {
            assert!(units.write(beyond, words).is_err() && units.read_words(beyond).is_err());
            assert!(units.read_first_half(beyond).is_err() && units.read_last_word(beyond).is_err());
        }
        assert!(Units::<8>::new(units.buffer().part(4, 64).unwrap()).is_err());
    }

    /// Reads a number as `read` does while another thread turns all its bytes over, and checks that no other number was ever there.
    fn never_torn<T: Copy + PartialEq + std::fmt::Debug + Send + 'static + FromBytes + IntoBytes + Immutable>(
        offset: usize,
        numbers: [T; 2],
        read: impl Fn(&DmaBuffer) -> T,
    ) {
        let buffer = DmaBuffer::on_heap(64, 64, 0).unwrap();
        buffer.write(offset, &numbers[0]).unwrap();
        let (card, is_done) = (buffer.clone(), Arc::new(AtomicBool::new(false)));
        let told = is_done.clone();
        let writer = std::thread::spawn(move || {
            for number in numbers.into_iter().cycle() {
                card.write(offset, &number).unwrap();
                if told.load(Ordering::Relaxed) {
                    return;
                }
            }
        });
        let torn = (0..200_000).map(|_| read(&buffer)).find(|number| !numbers.contains(number));
        is_done.store(true, Ordering::Relaxed);
        writer.join().unwrap();
        assert_eq!(torn, None, "halves of two numbers");
    }

    #[test]
    fn a_number_that_is_aligned_is_never_torn() {
        never_torn(4, [0x00FF_00FF_u32, 0xFF00_FF00], |buffer| buffer.read(4).unwrap());
        never_torn(6, [0x00FF_u16, 0xFF00], |buffer| buffer.read(6).unwrap());
        never_torn(0, [0x00FF_00FF_u32, 0xFF00_FF00], |buffer| Units::<8>::new(buffer.clone()).unwrap().read_first_half(0).unwrap());
    }

    #[test]
    fn no_bytes_are_no_allocation() {
        assert!(matches!(DmaBuffer::on_heap(0, 64, 0), Err(Error::OutOfMemory { len_bytes: 0, align: 64 })));
    }

    proptest! {
        #[test]
        fn copies_touch_their_range_and_nothing_else(offset in 0usize..64, bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            let buffer = DmaBuffer::on_heap(128, 64, 0).unwrap();
            buffer.fill(0, 128, 0xEE).unwrap();
            buffer.copy_in(offset, &bytes).unwrap();
            let mut back = vec![0; bytes.len()];
            buffer.copy_out(offset, &mut back).unwrap();
            prop_assert_eq!(&back, &bytes);
            let all = buffer.to_vec();
            prop_assert!(all[..offset].iter().chain(&all[offset + bytes.len()..]).all(|b| *b == 0xEE));
        }
    }
}
