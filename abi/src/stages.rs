//! The streams between the blocks of the card whose clocks are counted, to see where beats are lost.
//!
//! A stream of a stage has a beat in a clock with `valid` and `ready`, a stall in one with `valid` alone, and is idle in all others. Stalls run
//! against the stream: what takes too little holds up all stages before it, so of a row of stages that stall, the last one names the cause.

use crate::regs::{StageBeats, StageStalls};

/// What a stage is a part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Path {
    /// From the doorbell to the wire.
    Send,
    /// From the wire to memory, and to the answer.
    Receive,
    /// From the acknowledgement to the completion.
    Complete,
}

impl Path {
    /// All of them, in the order in which a write takes them.
    pub const ALL: [Self; 3] = [Self::Send, Self::Receive, Self::Complete];
}

macro_rules! stages {
    ($( $path:ident { $( $(#[doc = $doc:literal])+ $name:ident, )* } )*) => {
        /// The stages that the card counts, in the order in which a write walks through it, which is that of the registers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Stage { $($( $(#[doc = $doc])+ $name, )*)* }

        impl Stage {
            /// All of them, with what they carry.
            pub const ALL: &'static [(Stage, &'static str, &'static str)] =
                &[ $($( (Stage::$name, stringify!($name), concat!($($doc),+)), )*)* ];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// Returns what the stage is a part of.
            pub const fn path(self) -> Path {
                match self { $($( Self::$name => Path::$path, )*)* }
            }
        }
    };
}

stages! {
    Send {
        /// Doorbells into the scheduler.
        Bells,
        /// Reads of requests, up to eight requests each.
        FetchRequests,
        /// Lines of the requests, from host memory.
        FetchedLines,
        /// Entries of the requests, decoded, to the check of the local key.
        Items,
        /// Checked requests, to be cut into packets.
        RequestHeads,
        /// Packets, into the queue of those whose payload is awaited.
        PacketDescs,
        /// Ranges of memory that make the payload of the packets.
        GatherParts,
        /// Requests that are sent, to the table of the outstanding ones.
        Issues,
        /// Reads of payload.
        PayloadRequests,
        /// Read bursts to host memory, AXI4 AR: requests and payload.
        ReadBursts,
        /// Beats from host memory, AXI4 R: requests and payload.
        ReadBeats,
        /// Lines of payload in order, as memory had them.
        PayloadLines,
        /// Lines of payload at their place in the packet, into the queue of complete packets.
        GatheredLines,
        /// Packets and answers that were chosen to be sent next.
        Packets,
        /// Headers of packets and answers.
        Headers,
        /// Lines of payload to be put behind the headers.
        MergeLines,
        /// Beats of frames, into the ICRC.
        FrameBeats,
        /// Beats of frames with their ICRC.
        SealedBeats,
        /// Beats to the MAC.
        TxBeats,
    }
    Receive {
        /// Beats from the MAC. They never stall.
        RxBeats,
        /// Accepted frames.
        RxHeads,
        /// Lines of accepted payload, as the frame had them.
        RxLines,
        /// Writes of payload.
        ScatterRequests,
        /// Lines of payload at their place in memory.
        ScatterLines,
        /// Write bursts to host memory, AXI4 AW: payload and queue entries.
        WriteBursts,
        /// Beats to host memory, AXI4 W: payload and queue entries.
        WriteBeats,
        /// Acknowledgements and NAKs to be sent.
        Answers,
    }
    Complete {
        /// Acknowledgements and NAKs to the requester.
        Acks,
        /// Completions to the writer of completion entries.
        Completions,
        /// Writes of completion entries.
        CqWrites,
    }
}

impl Stage {
    /// Returns the byte offset in BAR0 of the register that counts beats.
    pub const fn beats_offset(self) -> u32 {
        StageBeats::OFFSET + 4 * self as u32
    }

    /// Returns the byte offset in BAR0 of the register that counts stalls.
    pub const fn stalls_offset(self) -> u32 {
        StageStalls::OFFSET + 4 * self as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_numbered_in_their_order_and_paths_follow_each_other() {
        for (number, (stage, name, doc)) in (0..).zip(Stage::ALL) {
            assert_eq!(*stage as u32, number, "{name}");
            assert!(doc.ends_with('.'), "{name}");
        }
        let mut paths = Path::ALL.iter();
        let mut part = None;
        for (stage, name, _) in Stage::ALL {
            if part != Some(stage.path()) {
                part = paths.next().copied();
                assert_eq!(part, Some(stage.path()), "{name}");
            }
        }
        assert_eq!(paths.next(), None);
    }

    #[test]
    fn a_stage_has_a_register_for_beats_and_one_for_stalls() {
        assert_eq!((Stage::Bells.beats_offset(), Stage::Bells.stalls_offset()), (0x200, 0x280));
        assert_eq!((Stage::CqWrites.beats_offset(), Stage::CqWrites.stalls_offset()), (0x200 + 4 * 29, 0x280 + 4 * 29));
    }
}
