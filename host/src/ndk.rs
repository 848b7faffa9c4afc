//! NDK's words: statuses, flags, results, and how the card's own codes read in them.
//!
//! Source: the NDKPI reference and `ndkpi.h`; numbers are those of `ntstatus.h`. NDKPI publishes no
//! table from transport errors to statuses; the one here is that of the user-mode interface
//! (`ND2` work completion statuses), which the same consumers know.

use verbena_abi::queue::{access, CqeStatus, WqeOp};

use crate::cq::{Completion, CompletionStatus, Operation};
use crate::error::Error;

/// A Windows status code.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct NtStatus(pub u32);

macro_rules! statuses {
    ($( $(#[doc = $doc:literal])+ $name:ident = $value:literal, )+) => {
        impl NtStatus {
            $( $(#[doc = $doc])+ pub const $name: Self = Self($value); )+
            /// All statuses, with their names.
            pub const ALL: &'static [(&'static str, NtStatus)] = &[$( (stringify!($name), Self::$name), )+];
        }
    };
}

statuses! {
    /// Done.
    SUCCESS = 0x0000_0000,
    /// A callback will follow.
    PENDING = 0x0000_0103,
    /// CQ overrun, or more data than fits.
    BUFFER_OVERFLOW = 0x8000_0005,
    /// The object is in use.
    DEVICE_BUSY = 0x8000_0011,
    /// Queue full. Of warning severity, so neither success nor error by the usual macros.
    NO_MORE_ENTRIES = 0x8000_001A,
    /// A key, a right or a range does not fit.
    ACCESS_VIOLATION = 0xC000_0005,
    /// An argument exceeds a limit.
    INVALID_PARAMETER = 0xC000_000D,
    /// Malformed request, or one that the object's state does not allow.
    INVALID_DEVICE_REQUEST = 0xC000_0010,
    /// The buffer does not hold the answer.
    BUFFER_TOO_SMALL = 0xC000_0023,
    /// Two arguments that exclude each other.
    INVALID_PARAMETER_MIX = 0xC000_0030,
    /// Too many SGEs, or a message that is too long.
    DATA_OVERRUN = 0xC000_003C,
    /// The peer's receive was too small. There are no sends here.
    DATA_ERROR = 0xC000_003E,
    /// The local address is in use.
    SHARING_VIOLATION = 0xC000_0043,
    /// Out of memory, numbers or queue entries of the driver.
    INSUFFICIENT_RESOURCES = 0xC000_009A,
    /// No answer in time.
    IO_TIMEOUT = 0xC000_00B5,
    /// Not offered by this card.
    NOT_SUPPORTED = 0xC000_00BB,
    /// The card contradicts itself.
    INTERNAL_ERROR = 0xC000_00E5,
    /// Argument 1 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_1 = 0xC000_00EF,
    /// Argument 2 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_2 = 0xC000_00F0,
    /// Argument 3 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_3 = 0xC000_00F1,
    /// Argument 4 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_4 = 0xC000_00F2,
    /// Argument 5 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_5 = 0xC000_00F3,
    /// Argument 6 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_6 = 0xC000_00F4,
    /// Argument 7 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_7 = 0xC000_00F5,
    /// Argument 8 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_8 = 0xC000_00F6,
    /// Argument 9 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_9 = 0xC000_00F7,
    /// Argument 10 of a call of NDSPI is wrong. Here it is `INVALID_PARAMETER`.
    INVALID_PARAMETER_10 = 0xC000_00F8,
    /// Flushed.
    CANCELLED = 0xC000_0120,
    /// The peer refused; the number of the user-mode `ND_REMOTE_ERROR`.
    REMOTE_RESOURCES = 0xC000_013D,
    /// Not an address of ours, or none at all.
    INVALID_ADDRESS = 0xC000_0141,
    /// Too much private data.
    INVALID_BUFFER_SIZE = 0xC000_0206,
    /// No free port.
    TOO_MANY_ADDRESSES = 0xC000_0209,
    /// There is such a connection already.
    ADDRESS_ALREADY_EXISTS = 0xC000_020A,
    /// Nobody listens, or the peer has rejected.
    CONNECTION_REFUSED = 0xC000_0236,
    /// A second address for a connector. Here a connector takes its address with `NdkConnect` alone.
    ADDRESS_ALREADY_ASSOCIATED = 0xC000_0238,
    /// The QP is not connected.
    CONNECTION_INVALID = 0xC000_023A,
    /// The QP is connected or connecting already.
    CONNECTION_ACTIVE = 0xC000_023B,
    /// No way to that network.
    NETWORK_UNREACHABLE = 0xC000_023C,
    /// Nobody answers.
    HOST_UNREACHABLE = 0xC000_023D,
    /// The peer gave up.
    CONNECTION_ABORTED = 0xC000_0241,
    /// The card is gone.
    DEVICE_REMOVED = 0xC000_02B6,
    /// More than this adapter can do.
    IMPLEMENTATION_LIMIT = 0xC000_042B,
    /// `NDIS_STATUS_BAD_VERSION`: the card speaks another interface.
    BAD_VERSION = 0xC001_0004,
    /// `NDIS_STATUS_ADAPTER_NOT_READY`.
    ADAPTER_NOT_READY = 0xC001_0011,
}

impl NtStatus {
    /// Tells whether this is `SUCCESS`.
    pub const fn is_success(self) -> bool {
        self.0 == 0
    }
}

/// Flags of work requests (`NDK_OP_FLAG_*`).
pub mod op_flags {
    /// Success makes no completion; failure and cancellation always do.
    pub const SILENT_SUCCESS: u32 = 0x1;
    /// Do not start before all earlier reads of the QP are done.
    pub const READ_FENCE: u32 = 0x2;
    /// The peer's receive completion is a solicited one.
    pub const SEND_AND_SOLICIT_EVENT: u32 = 0x4;
    /// Data is copied from the caller's memory during the call.
    pub const INLINE: u32 = 0x40;
    /// The doorbell may wait for the next request without this flag. 0x200, whatever the page of
    /// `NdkRead` prints.
    pub const DEFER: u32 = 0x200;
}

/// Flags of `NdkRegisterMr` (`NDK_MR_FLAG_*`).
pub mod mr_flags {
    /// Implied.
    pub const ALLOW_LOCAL_READ: u32 = 0x0;
    /// Receives and read sinks.
    pub const ALLOW_LOCAL_WRITE: u32 = 0x1;
    /// The peer may read.
    pub const ALLOW_REMOTE_READ: u32 = 0x2;
    /// The peer may write. Two bits: 0x4 and local write.
    pub const ALLOW_REMOTE_WRITE: u32 = 0x5;
    /// Sink of reads. Accepted and without effect: this card needs no special right for sinks.
    pub const RDMA_READ_SINK: u32 = 0x8;
}

/// Returns the access rights of the card for `NDK_MR_FLAG_*` bits. Any combination is legal;
/// unknown bits fail with [`Error::BadFlags`].
pub fn access_of_mr_flags(flags: u32) -> Result<u8, Error> {
    const KNOWN: u32 = mr_flags::ALLOW_LOCAL_WRITE | mr_flags::ALLOW_REMOTE_READ | mr_flags::ALLOW_REMOTE_WRITE | mr_flags::RDMA_READ_SINK;
    if flags & !KNOWN != 0 {
        return Err(Error::BadFlags { what: "NDK_MR_FLAG", flags, known: KNOWN });
    }
    let mut rights = 0;
    if flags & mr_flags::ALLOW_LOCAL_WRITE != 0 {
        rights |= access::LOCAL_WRITE;
    }
    if flags & mr_flags::ALLOW_REMOTE_READ != 0 {
        rights |= access::REMOTE_READ;
    }
    if flags & mr_flags::ALLOW_REMOTE_WRITE == mr_flags::ALLOW_REMOTE_WRITE {
        rights |= access::REMOTE_WRITE;
    }
    Ok(rights)
}

/// Kind of a completed request (`NDK_OPERATION_TYPE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum OperationType {
    /// A receive.
    Receive = 1,
    /// RDMA WRITE.
    Write = 64,
}

impl From<Operation> for OperationType {
    fn from(op: Operation) -> Self {
        match op {
            Operation::Receive => Self::Receive,
            Operation::Send(WqeOp::Write) => Self::Write,
        }
    }
}

/// What NDK calls a result (`NDK_RESULT_EX`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NdkResult {
    /// How the request ended.
    pub status: NtStatus,
    /// Bytes received; defined for receives alone, 0 otherwise.
    pub bytes_transferred: u32,
    /// The QP's context, as given at its creation.
    pub qp_context: u64,
    /// The request's context, as given when it was posted.
    pub request_context: u64,
    /// What was done.
    pub operation: OperationType,
    /// 0 on success; otherwise the card's status in bits 7:0 and the AETH syndrome in bits 15:8.
    pub provider_error_code: u32,
}

impl From<Completion> for NdkResult {
    fn from(completion: Completion) -> Self {
        Self {
            status: nt_status(completion.status),
            bytes_transferred: 0,
            qp_context: completion.qp_context,
            request_context: completion.context,
            operation: completion.op.into(),
            provider_error_code: u32::from(completion.status.raw()) | u32::from(completion.syndrome) << 8,
        }
    }
}

/// Returns the status with which a request of this end completes.
pub fn nt_status(status: CompletionStatus) -> NtStatus {
    match status {
        CompletionStatus::Card(code) => match code {
            CqeStatus::Success => NtStatus::SUCCESS,
            CqeStatus::LocalLength => NtStatus::DATA_OVERRUN,
            CqeStatus::LocalOperation => NtStatus::INVALID_DEVICE_REQUEST,
            CqeStatus::LocalProtection | CqeStatus::RemoteAccess => NtStatus::ACCESS_VIOLATION,
            CqeStatus::Flushed => NtStatus::CANCELLED,
            CqeStatus::RemoteInvalidRequest | CqeStatus::RemoteOperation => NtStatus::REMOTE_RESOURCES,
            CqeStatus::RetryExceeded | CqeStatus::RnrRetryExceeded => NtStatus::IO_TIMEOUT,
        },
        CompletionStatus::Unknown(_) => NtStatus::INTERNAL_ERROR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remote_write_is_two_bits_and_one_of_them_is_local_write() {
        assert_eq!(access_of_mr_flags(mr_flags::ALLOW_REMOTE_WRITE).unwrap(), access::LOCAL_WRITE | access::REMOTE_WRITE);
        assert_eq!(access_of_mr_flags(mr_flags::ALLOW_LOCAL_WRITE).unwrap(), access::LOCAL_WRITE);
        assert_eq!(access_of_mr_flags(mr_flags::ALLOW_LOCAL_READ).unwrap(), 0);
        assert_eq!(access_of_mr_flags(mr_flags::RDMA_READ_SINK).unwrap(), 0);
        assert_eq!(access_of_mr_flags(0x4).unwrap(), 0, "half of the remote write pattern gives no right");
    }

    #[test]
    fn an_unknown_registration_flag_is_named() {
        let error = access_of_mr_flags(0x21).unwrap_err();
        assert!(error.to_string().contains("0x21"), "{error}");
    }

    #[test]
    fn every_completion_status_has_its_ndk_status() {
        let expected = [
            (CqeStatus::Success, 0x0000_0000),
            (CqeStatus::LocalLength, 0xC000_003C),
            (CqeStatus::LocalOperation, 0xC000_0010),
            (CqeStatus::LocalProtection, 0xC000_0005),
            (CqeStatus::Flushed, 0xC000_0120),
            (CqeStatus::RemoteInvalidRequest, 0xC000_013D),
            (CqeStatus::RemoteAccess, 0xC000_0005),
            (CqeStatus::RemoteOperation, 0xC000_013D),
            (CqeStatus::RetryExceeded, 0xC000_00B5),
            (CqeStatus::RnrRetryExceeded, 0xC000_00B5),
        ];
        assert_eq!(expected.len(), CqeStatus::ALL.len());
        for (status, number) in expected {
            assert_eq!(nt_status(CompletionStatus::Card(status)).0, number, "{status:?}");
        }
        assert_eq!(nt_status(CompletionStatus::Unknown(77)), NtStatus::INTERNAL_ERROR);
    }

    #[test]
    fn a_result_carries_both_contexts_and_the_cards_own_code() {
        let completion = Completion {
            qpn: 3,
            qp_context: u64::MAX,
            context: 0x1234_5678_9ABC_DEF0,
            status: CompletionStatus::Card(CqeStatus::RemoteAccess),
            op: Operation::Send(WqeOp::Write),
            syndrome: 0x62,
        };
        let result = NdkResult::from(completion);
        assert_eq!((result.qp_context, result.request_context), (u64::MAX, 0x1234_5678_9ABC_DEF0));
        assert_eq!((result.status, result.provider_error_code), (NtStatus::ACCESS_VIOLATION, 0x620A));
        assert_eq!(result.operation as u32, 64);
    }
}
