//! Captures: written with nanoseconds of simulated time, read in both formats that Wireshark writes.

use std::fs::File;
use std::io::{BufReader, BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::pcapng::{Block, PcapNgReader};
use pcap_file::{DataLink, PcapError, TsResolution};
use thiserror::Error;

use crate::ffi::CLOCK_NS;
use crate::link::{Captured, BYTES_PER_CLOCK};

/// Most bytes of a frame in a capture.
const SNAP: u32 = 65_535;

/// A capture of both directions of a link, in the order of time.
pub struct Writer {
    file: PcapWriter<BufWriter<File>>,
    /// Frames that a frame of the other side may still precede.
    waiting: Vec<Captured>,
}

impl std::fmt::Debug for Writer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer").field("waiting", &self.waiting.len()).finish_non_exhaustive()
    }
}

impl Writer {
    /// Creates the file.
    pub fn create(path: &Path) -> std::io::Result<Self> {
        let header =
            PcapHeader { snaplen: SNAP, datalink: DataLink::ETHERNET, ts_resolution: TsResolution::NanoSecond, ..PcapHeader::default() };
        let file = PcapWriter::with_header(BufWriter::new(File::create(path)?), header).map_err(into_io)?;
        Ok(Self { file, waiting: Vec::new() })
    }

    /// Takes frames in any order, and writes those that started before `horizon`.
    pub fn write(&mut self, frames: Vec<Captured>, horizon: u64) -> std::io::Result<()> {
        self.waiting.extend(frames);
        // Stable: of frames that start at once, the first card's comes first.
        self.waiting.sort_by_key(|frame| frame.start);
        let ripe = self.waiting.partition_point(|frame| frame.start < horizon);
        for frame in self.waiting.drain(..ripe) {
            let time = Duration::from_nanos(frame.start * CLOCK_NS / BYTES_PER_CLOCK);
            let packet = PcapPacket::new(time, frame.bytes.len() as u32, &frame.bytes);
            self.file.write_packet(&packet).map_err(into_io)?;
        }
        Ok(())
    }

    /// Writes what is left.
    pub fn finish(mut self) -> std::io::Result<()> {
        self.write(Vec::new(), u64::MAX)?;
        self.file.into_writer().flush()
    }
}

fn into_io(error: PcapError) -> std::io::Error {
    match error {
        PcapError::IoError(error) => error,
        other => std::io::Error::other(other),
    }
}

/// Why a capture can't be read.
#[derive(Debug, Error)]
pub enum ReadError {
    /// The file can't be opened or read.
    #[error("{0}")]
    Io(#[from] std::io::Error),
    /// The file is something else.
    #[error("neither a pcap nor a pcapng capture")]
    NotACapture,
    /// The file is damaged or cut short.
    #[error("frame {index} is damaged: {reason}")]
    Damaged {
        /// Frames before it.
        index: usize,
        /// What the parser says.
        reason: String,
    },
    /// The frames are of another kind.
    #[error("link type {0:?}; only Ethernet is understood")]
    LinkType(DataLink),
}

/// A frame of a capture.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recorded {
    /// Time stamp.
    pub time: Duration,
    /// Length on the wire; more than the bytes here if the capture cut it.
    pub original_len: u32,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Reads a whole capture.
pub fn read(path: &Path) -> Result<Vec<Recorded>, ReadError> {
    let mut file = BufReader::new(File::open(path)?);
    let mut magic = [0; 4];
    file.read_exact(&mut magic).map_err(|error| {
        if error.kind() == std::io::ErrorKind::UnexpectedEof {
            ReadError::NotACapture
        } else {
            error.into()
        }
    })?;
    file.seek(SeekFrom::Start(0))?;
    match u32::from_le_bytes(magic) {
        0xA1B2_C3D4 | 0xD4C3_B2A1 | 0xA1B2_3C4D | 0x4D3C_B2A1 => read_pcap(file),
        0x0A0D_0D0A => read_pcapng(file),
        _ => Err(ReadError::NotACapture),
    }
}

fn read_pcap(file: BufReader<File>) -> Result<Vec<Recorded>, ReadError> {
    let mut reader = PcapReader::new(file).map_err(|error| damaged(0, error))?;
    check_link_type(reader.header().datalink)?;
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(|error| damaged(frames.len(), error))?;
        frames.push(Recorded { time: packet.timestamp, original_len: packet.orig_len, bytes: packet.data.into_owned() });
    }
    Ok(frames)
}

fn read_pcapng(file: BufReader<File>) -> Result<Vec<Recorded>, ReadError> {
    let mut reader = PcapNgReader::new(file).map_err(|error| damaged(0, error))?;
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        let (time, original_len, bytes) = match block.map_err(|error| damaged(frames.len(), error))? {
            Block::InterfaceDescription(interface) => {
                check_link_type(interface.linktype)?;
                continue;
            }
            Block::EnhancedPacket(packet) => (packet.timestamp, packet.original_len, packet.data.into_owned()),
            Block::SimplePacket(packet) => (Duration::ZERO, packet.original_len, packet.data.into_owned()),
            _ => continue,
        };
        frames.push(Recorded { time, original_len, bytes });
    }
    Ok(frames)
}

fn check_link_type(link: DataLink) -> Result<(), ReadError> {
    if link == DataLink::ETHERNET {
        Ok(())
    } else {
        Err(ReadError::LinkType(link))
    }
}

fn damaged(index: usize, error: PcapError) -> ReadError {
    match error {
        PcapError::IoError(error) if error.kind() != std::io::ErrorKind::UnexpectedEof => error.into(),
        other => ReadError::Damaged { index, reason: other.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_in_the_order_of_time() {
        let path = std::env::temp_dir().join(format!("verbena-pcap-{}.pcap", std::process::id()));
        let mut writer = Writer::create(&path).unwrap();
        let frame = |start: u64, fill: u8| Captured { start, bytes: vec![fill; 60] };
        writer.write(vec![frame(500, 1), frame(100, 0)], 200).unwrap();
        writer.write(vec![frame(300, 2)], 400).unwrap();
        writer.finish().unwrap();
        let frames = read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let seen: Vec<_> = frames.iter().map(|frame| (frame.time.as_nanos(), frame.bytes[0])).collect();
        assert_eq!(seen, [(8, 0), (24, 2), (40, 1)]);
    }
}
