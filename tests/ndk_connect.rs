//! Connections as a consumer of the C interface sees them, on two verilated cards; and at the end memory: regions and mappings.
//!
//! Every way in which a connection can go wrong is in `host/tests/driver/connections.rs`, on cards that take no time. Here it is what
//! the tables of functions add: statuses, lengths, closes, and memory that a card really reads.
//! A comment that begins with `choice:` says what this provider does where NDKPI leaves it open.

use std::cell::{Cell, RefCell};
use std::ffi::c_void;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::ptr::{null, null_mut};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;

use verbena_host::cm::Exchange;
use verbena_host::ndk::NtStatus;
use verbena_host::AdapterConfig;
use verbena_ndk::abi::*;
use verbena_ndk::open::{CardHandle, VerbenaCloseDevice, VerbenaCloseNdkAdapter, VerbenaProcessEvents};
use verbena_tests::ndk::*;
use verbena_tests::{close, ndk};

const TOO_SMALL: NTSTATUS = nt(NtStatus::BUFFER_TOO_SMALL);
const REFUSED: NTSTATUS = nt(NtStatus::CONNECTION_REFUSED);
const ABORTED: NTSTATUS = nt(NtStatus::CONNECTION_ABORTED);
const ACTIVE: NTSTATUS = nt(NtStatus::CONNECTION_ACTIVE);
const IN_USE: NTSTATUS = nt(NtStatus::SHARING_VIOLATION);
const NOT_OURS: NTSTATUS = nt(NtStatus::INVALID_ADDRESS);
const UNREACHABLE: NTSTATUS = nt(NtStatus::HOST_UNREACHABLE);
const EXISTS: NTSTATUS = nt(NtStatus::ADDRESS_ALREADY_EXISTS);
const TOO_LONG: NTSTATUS = nt(NtStatus::INVALID_BUFFER_SIZE);
const BAD_STATE: NTSTATUS = nt(NtStatus::INVALID_DEVICE_REQUEST);
const NO_ACCESS: NTSTATUS = nt(NtStatus::ACCESS_VIOLATION);
const LIMIT: NTSTATUS = nt(NtStatus::IMPLEMENTATION_LIMIT);

/// Where the passive side listens.
const PORT: u16 = 6_000;

// What the peer has sent along.

#[test]
fn connection_data_always_gives_the_size_that_is_needed() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    let (active, asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(data(active, 16), (SUCCESS, 0, vec![CANARY; 16]), "nobody has sent anything");
    assert_eq!(connect_with(&bench, active, ends[0].qp, PORT, b"0123456789", asked), PENDING);
    let passive = requested(&bench, requests);
    let all_cases = |connector, sent: &[u8]| {
        let needed = sent.len() as u32;
        assert_eq!(size_of_data(connector, 0), (SUCCESS, needed), "no buffer of no bytes asks for the size");
        assert_eq!(size_of_data(connector, 100), (INVALID_PARAMETER, needed), "no buffer of some bytes");
        assert_eq!(data(connector, 0), (TOO_SMALL, needed, vec![]), "a buffer of no bytes");
        let padded = |copied: usize, size: usize| [&sent[..copied], &vec![CANARY; size - copied][..]].concat();
        assert_eq!(data(connector, sent.len() - 1), (TOO_SMALL, needed, padded(sent.len() - 1, sent.len() - 1)));
        assert_eq!(data(connector, sent.len()), (SUCCESS, needed, padded(sent.len(), sent.len())));
        assert_eq!(data(connector, 256), (SUCCESS, needed, padded(sent.len(), 256)), "and nothing beyond");
    };
    all_cases(passive, b"0123456789");
    // Both limits are optional, and 0: this card has no reads.
    let (mut inbound, mut outbound, mut len) = (7, 7, 0);
    assert_eq!(ndk!(passive, NdkGetConnectionData(&mut inbound, null_mut(), null_mut(), &mut len)), SUCCESS);
    assert_eq!(ndk!(passive, NdkGetConnectionData(null_mut(), &mut outbound, null_mut(), &mut len)), INVALID_PARAMETER, "len is 10 now");
    assert_eq!((inbound, outbound), (0, 0));
    assert_eq!(ndk!(passive, NdkGetConnectionData(null_mut(), null_mut(), null_mut(), null_mut())), INVALID_PARAMETER);

    let (accepted, event) = (bench.slot(), bench.slot());
    assert_eq!(accept_with(passive, ends[1].qp, b"yes", event, accepted), PENDING);
    assert_eq!(bench.done(PENDING, asked), SUCCESS);
    all_cases(active, b"yes");
    let completed = bench.slot();
    assert_eq!(bench.done(complete(active, event, completed), completed), SUCCESS);
    assert_eq!(bench.done(PENDING, accepted), SUCCESS);
    // As long as the connectors live.
    all_cases(active, b"yes");
    all_cases(passive, b"0123456789");
    let gone = bench.slot();
    assert_eq!(bench.done(disconnect(active, gone), gone), SUCCESS);
    all_cases(active, b"yes");
    all_cases(passive, b"0123456789");
    close!(bench, active => NdkCloseConnector, passive => NdkCloseConnector, listener => NdkCloseListener);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn private_data_up_to_the_limits_of_the_adapter_and_not_beyond() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    let (active, asked) = (connector(&bench, 0), bench.slot());
    let bytes = [7; 149];
    assert_eq!(connect_with(&bench, active, ends[0].qp, PORT, &bytes[..57], asked), TOO_LONG);
    assert_eq!(connect_with(&bench, active, ends[0].qp, PORT, &bytes[..56], asked), PENDING);
    let passive = requested(&bench, requests);
    assert_eq!(size_of_data(passive, 0), (SUCCESS, 56));
    let slot = bench.slot();
    assert_eq!(accept_with(passive, ends[1].qp, &bytes, slot, slot), TOO_LONG);
    assert_eq!(ndk!(passive, NdkReject(bytes.as_ptr().cast(), 149)), TOO_LONG);
    assert_eq!(ndk!(passive, NdkReject(bytes.as_ptr().cast(), 148)), SUCCESS);
    assert_eq!(bench.done(PENDING, asked), REFUSED);
    assert_eq!(size_of_data(active, 0), (SUCCESS, 148), "a rejection carries data, too");
    assert_eq!(slot.count(), 0, "an inline error has no callback");
    close!(bench, active => NdkCloseConnector, passive => NdkCloseConnector, listener => NdkCloseListener);
    close_ends(&bench, ends);
    bench.close();
}

// Addresses.

#[test]
fn addresses_are_given_with_the_size_that_is_needed() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    let endpoint = shared_endpoint(&bench, 0, 7_000).unwrap();
    let active = connector(&bench, 0);
    let (at, from) = (address(&bench, 1, PORT), address(&bench, 0, 7_000));
    // choice: before there is an address, no buffer would do.
    assert_eq!(ask_address(16, |to, len| ndk!(active, NdkGetLocalAddress(to, len))).0, BAD_STATE);
    assert_eq!(ask_address(16, |to, len| ndk!(active, NdkGetPeerAddress(to, len))).0, BAD_STATE);
    let (to, to_bytes) = sockaddr(at);
    let asked = bench.slot();
    let status = ndk!(
        active,
        NdkConnectWithSharedEndpoint(
            ends[0].qp,
            endpoint,
            to.as_ptr().cast(),
            to_bytes,
            0,
            0,
            null_mut(),
            0,
            Some(on_done),
            asked.context()
        )
    );
    assert_eq!(status, PENDING);
    let passive = requested(&bench, requests);
    let check = |expected: SocketAddr, ask: &dyn Fn(*mut SOCKADDR, *mut u32) -> NTSTATUS| {
        let (bytes, needed) = sockaddr(expected);
        let mut len = 0;
        assert_eq!((ask(null_mut(), &mut len), len), (TOO_SMALL, needed));
        let mut len = 100;
        assert_eq!((ask(null_mut(), &mut len), len), (TOO_SMALL, needed), "nowhere to put it");
        assert_eq!(ask_address(needed - 1, ask), (TOO_SMALL, needed, vec![CANARY; 40]), "nothing is written");
        for given in [needed, needed + 12] {
            let (status, len, found) = ask_address(given, ask);
            assert_eq!((status, len), (SUCCESS, needed));
            assert_eq!(found[..needed as usize], bytes);
            assert!(found[needed as usize..].iter().all(|byte| *byte == CANARY));
        }
        assert_ne!(ask(null_mut(), null_mut()), SUCCESS);
    };
    check(at, &|to, len| ndk!(listener, NdkGetLocalAddress(to, len)));
    check(from, &|to, len| ndk!(endpoint, NdkGetLocalAddress(to, len)));
    check(from, &|to, len| ndk!(active, NdkGetLocalAddress(to, len)));
    check(at, &|to, len| ndk!(active, NdkGetPeerAddress(to, len)));
    check(at, &|to, len| ndk!(passive, NdkGetLocalAddress(to, len)));
    check(from, &|to, len| ndk!(passive, NdkGetPeerAddress(to, len)));
    close!(
        bench,
        endpoint => NdkCloseSharedEndpoint,
        active => NdkCloseConnector,
        passive => NdkCloseConnector,
        listener => NdkCloseListener,
    );
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn ipv6_is_as_good_as_ipv4() {
    let mut bench = Bench::new();
    let ip = |number| Ipv6Addr::new(0xFD00, 0, 0, 0, 0, 0, 0, number);
    let exchange = Exchange::new();
    for number in 0..2u8 {
        let config = AdapterConfig::new([2, 0, 0, 0, 0, number + 1], None, Some(ip(u16::from(number) + 1)));
        let card = bench.sides[usize::from(number)].card.clone();
        reopen(&mut bench, number.into(), CardHandle::new(card, config, Arc::clone(&exchange)), (2, 1));
    }
    let ends = End::both(&bench);
    let requests = bench.slot();
    let listener = new_listener(&bench, 1, requests);
    let at = SocketAddr::from((ip(2), PORT));
    assert_eq!(listen_at(listener, SocketAddr::from((ip(1), PORT))), NOT_OURS);
    assert_eq!(listen_at(listener, at), SUCCESS);
    let active = connector(&bench, 0);
    let asked = bench.slot();
    assert_eq!(connect_from(active, ends[0].qp, SocketAddr::from((ip(1), 0)), at, &[], asked), PENDING);
    let connected = finish(&bench, &ends, active, requested(&bench, requests), asked, listener);
    let (status, len, found) = ask_address(28, |to, len| ndk!(connected.connectors[0], NdkGetPeerAddress(to, len)));
    assert_eq!((status, len, &found[..28]), (SUCCESS, 28, &sockaddr(at).0[..]));
    let (source, sink) = regions(&bench, &ends, 3_000);
    source.fill(0, &[0x66; 3_000]);
    assert_eq!(bench.write(ends[0].qp, 1, &[source.sge(0, 3_000)], sink.va(0), sink.token, 0), SUCCESS);
    assert_eq!(bench.reap(ends[0].cq, 1)[0].status, SUCCESS);
    assert_eq!(sink.read(0, 3_000), [0x66; 3_000]);
    close!(bench, source.mr => NdkCloseMr, sink.mr => NdkCloseMr);
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn listening_has_its_statuses() {
    let bench = Bench::new();
    let requests = bench.slot();
    let [first, second] = [0; 2].map(|_| new_listener(&bench, 1, requests));
    let done = bench.slot();
    let try_bytes = |bytes: &[u8], len: u32| ndk!(first, NdkListen(bytes.as_ptr().cast(), len, Some(on_done), done.context()));
    let (good, good_bytes) = sockaddr(address(&bench, 1, PORT));
    assert_eq!(try_bytes(&good, good_bytes - 9), INVALID_PARAMETER, "the address is cut off");
    assert_eq!(try_bytes(&[99; 16], 16), INVALID_PARAMETER, "a family that there is not");
    assert_eq!(ndk!(first, NdkListen(null(), 0, Some(on_done), done.context())), INVALID_PARAMETER);
    assert_eq!(listen_at(first, address(&bench, 0, PORT)), NOT_OURS);
    // choice: there is no wildcard, an adapter's address must be named.
    assert_eq!(listen_at(first, SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT))), NOT_OURS);
    assert_eq!(listen_at(first, SocketAddr::from((Ipv6Addr::LOCALHOST, PORT))), NOT_OURS);
    assert_eq!(listen_at(first, address(&bench, 1, PORT)), SUCCESS, "after all these failures");
    assert_eq!(listen_at(second, address(&bench, 1, PORT)), IN_USE);
    // choice: a listener listens at one address.
    assert_eq!(listen_at(first, address(&bench, 1, PORT + 1)), ACTIVE);
    assert_eq!(listen_at(second, address(&bench, 1, 0)), SUCCESS);
    let (status, _, found) = ask_address(16, |to, len| ndk!(second, NdkGetLocalAddress(to, len)));
    assert_eq!(status, SUCCESS);
    assert!(u16::from_be_bytes([found[2], found[3]]) >= 49_152, "{found:x?}");
    assert_eq!(shared_endpoint(&bench, 1, PORT), Err(IN_USE));
    bench.settle();
    assert_eq!(done.count(), 0);
    close!(bench, first => NdkCloseListener, second => NdkCloseListener);
    let endpoint = shared_endpoint(&bench, 1, PORT).expect("the address is free again");
    close!(bench, endpoint => NdkCloseSharedEndpoint);
    bench.close();
}

#[test]
fn connecting_has_its_statuses() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    let active = connector(&bench, 0);
    let asked = bench.slot();
    let (own, at) = (address(&bench, 0, 0), address(&bench, 1, PORT));
    let qp = ends[0].qp;
    assert_eq!(connect_from(active, null_mut(), own, at, &[], asked), INVALID_PARAMETER);
    assert_eq!(connect_from(active, qp, address(&bench, 1, 0), at, &[], asked), NOT_OURS);
    assert_eq!(connect_from(active, qp, own, address(&bench, 0, PORT), &[], asked), UNREACHABLE, "there is no loopback");
    assert_eq!(connect_from(active, qp, own, SocketAddr::from(([192, 0, 2, 99], PORT)), &[], asked), UNREACHABLE);
    let busy = shared_endpoint(&bench, 0, 7_000).unwrap();
    assert_eq!(connect_from(active, qp, address(&bench, 0, 7_000), at, &[], asked), IN_USE);
    bench.settle();
    assert_eq!((asked.count(), requests.count()), (0, 0));

    // A failure leaves QP and connector as they were.
    assert_eq!(connect_from(active, qp, own, at, &[], asked), PENDING);
    assert_eq!(connect_from(active, qp, own, at, &[], asked), ACTIVE, "a connector connects once");
    let other = connector(&bench, 0);
    assert_eq!(connect_from(other, qp, own, at, &[], bench.slot()), ACTIVE, "a QP belongs to one connector");
    let passive = requested(&bench, requests);
    assert_eq!(ndk!(passive, NdkReject(null(), 0)), SUCCESS);
    assert_eq!(bench.done(PENDING, asked), REFUSED);
    assert_eq!(ndk!(passive, NdkReject(null(), 0)), ABORTED, "once is enough");
    // After a failure that came later it is the connector that is used up, and the QP goes with another.
    assert_eq!(connect_from(active, qp, own, at, &[], asked), ACTIVE);
    let asked = bench.slot();
    assert_eq!(connect_from(other, qp, own, address(&bench, 1, PORT + 1), &[], asked), PENDING);
    assert_eq!(bench.done(PENDING, asked), REFUSED, "nobody listens there");
    let (third, asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(connect_from(third, qp, own, at, &[], asked), PENDING);
    bench.settle();
    let Call::Requested(second) = requests.calls()[1] else { unreachable!() };
    let connected = finish(&bench, &ends, third, second as *mut NDK_CONNECTOR, asked, listener);
    close!(bench, busy => NdkCloseSharedEndpoint, active => NdkCloseConnector, other => NdkCloseConnector, passive => NdkCloseConnector);
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn connect_events_can_be_paused() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    ndk!(listener, NdkControlConnectEvents(1));
    let (first, asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(connect_with(&bench, first, ends[0].qp, PORT, &[], asked), PENDING);
    assert_eq!((bench.done(PENDING, asked), requests.count()), (REFUSED, 0), "as though nobody listened");
    ndk!(listener, NdkControlConnectEvents(0));
    let (second, asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(connect_with(&bench, second, ends[0].qp, PORT, &[], asked), PENDING);
    let passive = requested(&bench, requests);
    // One that came before the pause is the consumer's to answer.
    ndk!(listener, NdkControlConnectEvents(1));
    let connected = finish(&bench, &ends, second, passive, asked, listener);
    close!(bench, first => NdkCloseConnector);
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn a_shared_endpoint_is_held_by_its_connections() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let more = End::new(&bench, 0);
    let (listeners, requests): (Vec<_>, Vec<_>) = [PORT, PORT + 1].into_iter().map(|port| listen(&bench, port)).unzip();
    let endpoint = shared_endpoint(&bench, 0, 7_000).unwrap();
    assert_eq!(shared_endpoint(&bench, 0, 7_000), Err(IN_USE));
    let connect = |connector: *mut NDK_CONNECTOR, qp, port, slot: &Slot| {
        let (to, to_bytes) = sockaddr(address(&bench, 1, port));
        let (to, context) = (to.as_ptr().cast(), slot.context());
        ndk!(connector, NdkConnectWithSharedEndpoint(qp, endpoint, to, to_bytes, 0, 0, null(), 0, Some(on_done), context))
    };
    let (connectors, asked) = ([0; 3].map(|_| connector(&bench, 0)), [0; 3].map(|_| bench.slot()));
    assert_eq!(connect_from(connectors[2], more.qp, address(&bench, 0, 7_000), address(&bench, 1, PORT), &[], asked[2]), IN_USE);
    assert_eq!(connect(connectors[0], ends[0].qp, PORT, asked[0]), PENDING);
    assert_eq!(connect(connectors[1], more.qp, PORT, asked[1]), EXISTS, "the same two addresses");
    assert_eq!(connect(connectors[1], more.qp, PORT + 1, asked[1]), PENDING);
    let passives = [0, 1].map(|number| requested(&bench, requests[number]));
    let connected = finish(&bench, &ends, connectors[0], passives[0], asked[0], listeners[0]);

    let closing = bench.close_object(entry(endpoint, |table| table.NdkCloseSharedEndpoint), endpoint.cast());
    bench.settle();
    assert_eq!(closing.count(), 0, "two connectors hold it");
    close!(bench, connectors[1] => NdkCloseConnector, connectors[2] => NdkCloseConnector, passives[1] => NdkCloseConnector);
    assert_eq!((closing.count(), shared_endpoint(&bench, 0, 7_000)), (0, Err(IN_USE)));
    close_connected(&bench, &connected);
    bench.closed(closing);
    let again = shared_endpoint(&bench, 0, 7_000).expect("the last holder is gone");
    close!(bench, again => NdkCloseSharedEndpoint, listeners[1] => NdkCloseListener);
    close_ends(&bench, ends.into_iter().chain([more]));
    bench.close();
}

// Connected, and what may be posted when.

#[test]
fn initiator_requests_need_a_connection_and_receives_do_not() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    let check = |when: &str, expected: [NTSTATUS; 2]| {
        let found = [0, 1].map(|side| bench.write(ends[side].qp, 5, &[], 0, 0, 0));
        assert_eq!(found, expected, "{when}");
        let found = [0, 1].map(|side| receive(ends[side].qp, 6));
        assert_eq!(found, [SUCCESS; 2], "receives, {when}");
    };
    const NO: NTSTATUS = CONNECTION_INVALID;
    check("before anything", [NO; 2]);
    let (active, asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(connect_with(&bench, active, ends[0].qp, PORT, &[], asked), PENDING);
    check("asked", [NO; 2]);
    let passive = requested(&bench, requests);
    let (accepted, events) = (bench.slot(), [bench.slot(), bench.slot()]);
    assert_eq!(accept_with(passive, ends[1].qp, &[], events[1], accepted), PENDING);
    check("accepting", [NO; 2]);
    assert_eq!(bench.done(PENDING, asked), SUCCESS);
    check("answered", [NO; 2]);
    let completed = bench.slot();
    assert_eq!(complete(active, events[0], completed), PENDING);
    check("completing", [NO; 2]);
    assert_eq!(bench.done(PENDING, completed), SUCCESS);
    assert_eq!(bench.done(PENDING, accepted), SUCCESS);
    check("connected", [SUCCESS; 2]);
    let entries = [0, 1].map(|side| bench.reap(ends[side].cq, 1)[0]);
    assert_eq!(entries.map(|entry| (entry.request, entry.status)), [(5, SUCCESS); 2]);
    let gone = bench.slot();
    assert_eq!(bench.done(disconnect(active, gone), gone), SUCCESS);
    let found = [0, 1].map(|side| bench.write(ends[side].qp, 5, &[], 0, 0, 0));
    // The peer has been told, and decides by itself; nobody answers its requests.
    assert_eq!(found, [NO, SUCCESS], "disconnected by the active side");
    assert_eq!(receive(ends[0].qp, 6), NO);
    assert_eq!(events.map(|slot| slot.calls()), [vec![], vec![Call::Disconnected]]);
    let gone = bench.slot();
    assert_eq!(bench.done(disconnect(passive, gone), gone), SUCCESS);
    // Each success of a post has its completion.
    for (side, requests) in [(0, [].as_slice()), (1, [5].as_slice())] {
        let mut entries = bench.reap(ends[side].cq, 6 + requests.len());
        entries.sort_by_key(|entry| entry.request);
        let found: Vec<_> = entries.iter().map(|entry| (entry.request, entry.status)).collect();
        let expected: Vec<_> = requests.iter().chain(&[6; 6]).map(|request| (*request, CANCELLED)).collect();
        assert_eq!(found, expected);
        bench.settle();
        assert_eq!(bench.take(ends[side].cq, 4), []);
    }
    close!(bench, active => NdkCloseConnector, passive => NdkCloseConnector, listener => NdkCloseListener);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn receives_that_were_posted_before_connecting_survive_it_and_are_cancelled_by_a_flush() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    for end in &ends {
        for request in 0..3 {
            assert_eq!(receive(end.qp, request), SUCCESS);
        }
    }
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    assert_eq!(bench.write(ends[0].qp, 50, &[], 0, 0, 0), SUCCESS);
    assert_eq!(bench.reap(ends[0].cq, 1)[0].request, 50);
    bench.settle();
    assert_eq!([0, 1].map(|side| bench.take(ends[side].cq, 4)), [vec![], vec![]]);
    for end in &ends {
        ndk!(end.qp, NdkFlush());
        let entries = bench.reap(end.cq, 3);
        let expected = |request| Entry { status: CANCELLED, qp: 0xC0FFEE, request, operation: 1, code: entries[0].code };
        assert_eq!(entries, [expected(0), expected(1), expected(2)]);
    }
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn version_2_1_has_events_with_a_reason_and_the_same_way_to_connect() {
    unsafe extern "C" fn on_event_ex(context: PVOID, reason: u32) {
        assert_eq!(reason, 0, "none is known");
        // SAFETY: the context is a slot's.
        unsafe { on_disconnected(context) };
    }
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    let (active, asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(connect_with(&bench, active, ends[0].qp, PORT, &[], asked), PENDING);
    let passive = requested(&bench, requests);
    let (slots, events) = ([bench.slot(), bench.slot()], [bench.slot(), bench.slot()]);
    let event = |side: usize| events[side].context();
    let status = ndk!(passive, NdkAcceptEx(ends[1].qp, 0, 0, null(), 0, Some(on_event_ex), event(1), Some(on_done), slots[1].context()));
    assert_eq!(status, PENDING);
    assert_eq!(bench.done(PENDING, asked), SUCCESS);
    let status = ndk!(active, NdkCompleteConnectEx(Some(on_event_ex), event(0), Some(on_done), slots[0].context()));
    assert_eq!((status, bench.done(PENDING, slots[0]), bench.done(PENDING, slots[1])), (PENDING, SUCCESS, SUCCESS));
    close!(bench, passive => NdkCloseConnector);
    bench.wait("the event", || (events[0].count() > 0).then_some(()));
    assert_eq!(events.map(|slot| slot.calls()), [vec![Call::Disconnected], vec![]]);
    close!(bench, active => NdkCloseConnector, listener => NdkCloseListener);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn consumers_of_older_versions_connect_with_newer_ones() {
    for (versions, reported) in [([(1, 0), (2, 1)], [(1, 2), (2, 1)]), ([(2, 0), (1, 1)], [(2, 1), (1, 2)])] {
        let mut bench = Bench::new();
        let exchange = Exchange::new();
        for side in [0, 1] {
            let config = AdapterConfig::new([2, 0, 0, 0, 0, side as u8 + 1], Some(bench.sides[side].ip), None);
            let card = bench.sides[side].card.clone();
            reopen(&mut bench, side, CardHandle::new(card, config, Arc::clone(&exchange)), versions[side]);
        }
        let ends = End::both(&bench);
        let connected = bench.connect(ends.each_ref().map(|end| end.qp));
        let endpoint = shared_endpoint(&bench, 0, 0).unwrap();
        let region = bench.region(ends[0].pd, 10, 0);
        let headers: [(*mut NDK_OBJECT_HEADER, NDK_OBJECT_TYPE); 9] = [
            (bench.sides[0].adapter.cast(), NDK_OBJECT_TYPE::NdkObjectTypeAdapter),
            (ends[0].qp.cast(), NDK_OBJECT_TYPE::NdkObjectTypeQp),
            (ends[0].cq.cast(), NDK_OBJECT_TYPE::NdkObjectTypeCq),
            (ends[0].pd.cast(), NDK_OBJECT_TYPE::NdkObjectTypePd),
            (region.mr.cast(), NDK_OBJECT_TYPE::NdkObjectTypeMr),
            (endpoint.cast(), NDK_OBJECT_TYPE::NdkObjectTypeSharedEndpoint),
            (connected.connectors[0].cast(), NDK_OBJECT_TYPE::NdkObjectTypeConnector),
            (connected.connectors[1].cast(), NDK_OBJECT_TYPE::NdkObjectTypeConnector),
            (connected.listener.cast(), NDK_OBJECT_TYPE::NdkObjectTypeListener),
        ];
        for (number, (header, kind)) in headers.into_iter().enumerate() {
            // The last two are objects of the passive side, one of which the provider has made by itself.
            let (major, minor) = reported[usize::from(number >= 7)];
            // SAFETY: the objects live, and begin with their headers.
            let header = unsafe { &*header };
            assert_eq!((header.Version, header.ObjectType), (NDK_VERSION { Major: major, Minor: minor }, kind));
            assert_eq!(header.NdkReserved.rf, [null_mut(); 4]);
        }
        assert_eq!(bench.write(ends[0].qp, 1, &[], 0, 0, 0), SUCCESS);
        assert_eq!(bench.reap(ends[0].cq, 1)[0].status, SUCCESS);
        close!(bench, endpoint => NdkCloseSharedEndpoint, region.mr => NdkCloseMr);
        close_connected(&bench, &connected);
        close_ends(&bench, ends);
        bench.close();
    }
}

// The end of a connection.

/// Bytes of a write that is under way for some ten thousand clocks.
const BIG: usize = 1 << 20;

/// Starts a big write from a mapping of pages, which can be taken back at any time; the card must not read it any more then.
fn start_big_write(bench: &Bench, ends: &[End; 2]) -> (Lam, Region) {
    let buffer = Buffer::new(BIG, 0);
    let lam = Lam::build(bench, 0, &buffer);
    let sink = bench.region(ends[1].pd, BIG, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    let sge = NDK_SGE { Address: lam.pages()[0], Length: BIG as u32, MemoryRegionToken: privileged(ends[0].pd) };
    buffer.bytes.iter().for_each(|byte| byte.set(0x11));
    assert_eq!(bench.write(ends[0].qp, 40, &[sge], sink.va(0), sink.token, 0), SUCCESS);
    bench.wait("the write to be under way", || (sink.read(BIG / 8, 1) == [0x11]).then_some(()));
    assert_eq!(sink.read(BIG - 1, 1), [0xEE], "and it is not over");
    (lam, sink)
}

#[test]
fn a_disconnect_waits_until_the_card_reads_nothing_any_more() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let (lam, sink) = start_big_write(&bench, &ends);
    // Silent requests as well: nobody will say when they are over.
    assert_eq!(bench.write(ends[0].qp, 41, &[], 0, 0, 1), SUCCESS);
    let gone = bench.slot();
    assert_eq!(disconnect(connected.connectors[0], gone), PENDING);
    assert_eq!(gone.count(), 0);
    // The usual answer of a peer to its event, which must not make it any shorter.
    bench.wait("the peer's event", || (connected.events[1].count() > 0).then_some(()));
    let peer = bench.close_object(entry(connected.connectors[1], |table| table.NdkCloseConnector), connected.connectors[1].cast());
    assert_eq!(bench.done(PENDING, gone), SUCCESS);
    // A stray read would be a fault of the card, which ends the test.
    lam.release(&bench, 0);
    bench.settle();
    let entries = bench.reap(ends[0].cq, 2);
    assert_eq!(entries.iter().map(|entry| (entry.request, entry.status)).collect::<Vec<_>>(), [(40, CANCELLED), (41, CANCELLED)]);
    assert_eq!(connected.events.map(|slot| slot.calls()), [vec![], vec![Call::Disconnected]]);
    bench.closed(peer);
    close!(bench, sink.mr => NdkCloseMr, connected.connectors[0] => NdkCloseConnector, connected.listener => NdkCloseListener);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn a_disconnect_waits_until_the_card_writes_nothing_any_more() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let (lam, sink) = start_big_write(&bench, &ends);
    let gone = bench.slot();
    let status = disconnect(connected.connectors[1], gone);
    assert_eq!(bench.done(status, gone), SUCCESS);
    let image = sink.read(0, BIG);
    assert_eq!(image[BIG - 1], 0xEE, "the peer was in the middle of it");
    bench.settle();
    assert!(sink.read(0, BIG) == image, "the peer's write goes on behind the end of the connection");
    // Nobody answers any more, so the peer's request fails, or is flushed with its connector.
    close!(bench, sink.mr => NdkCloseMr);
    close_connected(&bench, &connected);
    assert_ne!(bench.reap(ends[0].cq, 1)[0].status, SUCCESS);
    lam.release(&bench, 0);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn a_close_without_a_disconnect_flushes_the_qp_and_waits_until_the_card_is_done_with_it() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    assert_eq!(receive(ends[0].qp, 1), SUCCESS);
    let (lam, sink) = start_big_write(&bench, &ends);
    let closing = bench.close_object(entry(connected.connectors[0], |table| table.NdkCloseConnector), connected.connectors[0].cast());
    assert_eq!(closing.count(), 0, "it pends");
    // choice: the flush begins where events are processed next. What is posted before that is cancelled with the rest.
    assert_eq!(bench.write(ends[0].qp, 42, &[], 0, 0, 0), SUCCESS);
    bench.closed(closing);
    assert_eq!(bench.write(ends[0].qp, 43, &[], 0, 0, 0), CONNECTION_INVALID);
    // Microsoft's sample relies on it: what the requests named is the consumer's again.
    lam.release(&bench, 0);
    bench.settle();
    let mut entries: Vec<_> = bench.reap(ends[0].cq, 3).iter().map(|entry| (entry.request, entry.status)).collect();
    entries.sort_unstable();
    assert_eq!(entries, [(1, CANCELLED), (40, CANCELLED), (42, CANCELLED)]);
    bench.wait("the peer's event", || (connected.events[1].count() > 0).then_some(()));
    assert_eq!(connected.events.map(|slot| slot.calls()), [vec![], vec![Call::Disconnected]], "the one who closes is told nothing");
    close!(bench, sink.mr => NdkCloseMr, connected.connectors[1] => NdkCloseConnector, connected.listener => NdkCloseListener);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn both_sides_disconnect_at_once() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let slots = [bench.slot(), bench.slot()];
    assert_eq!([0, 1].map(|side| disconnect(connected.connectors[side], slots[side])), [PENDING; 2]);
    assert_eq!(slots.map(|slot| bench.done(PENDING, slot)), [SUCCESS; 2]);
    bench.settle();
    assert_eq!(slots.map(|slot| slot.count()), [1; 2]);
    assert_eq!(disconnect(connected.connectors[0], bench.slot()), CONNECTION_INVALID, "once is enough");
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn a_request_that_fails_ends_the_connection_on_both_sides_once() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    assert_eq!(receive(ends[1].qp, 3), SUCCESS);
    let source = bench.region(ends[0].pd, 100, 0);
    assert_eq!(bench.write(ends[0].qp, 1, &[source.sge(0, 100)], 0x1234, 0xBAD, 0), SUCCESS);
    assert_eq!(bench.write(ends[0].qp, 2, &[], 0, 0, 0), SUCCESS);
    let entries = bench.reap(ends[0].cq, 2);
    assert_eq!(entries.iter().map(|entry| (entry.request, entry.status)).collect::<Vec<_>>(), [(1, NO_ACCESS), (2, CANCELLED)]);
    assert_eq!(bench.reap(ends[1].cq, 1)[0].status, CANCELLED, "the receive of the one who refused");
    bench.wait("both events", || (connected.events.iter().all(|slot| slot.count() > 0)).then_some(()));
    bench.settle();
    assert_eq!(connected.events.map(|slot| slot.calls()), [vec![Call::Disconnected], vec![Call::Disconnected]]);
    assert_eq!([0, 1].map(|side| bench.write(ends[side].qp, 9, &[], 0, 0, 0)), [CONNECTION_INVALID; 2]);
    // choice: what is over by itself is not disconnected.
    assert_eq!(disconnect(connected.connectors[0], bench.slot()), CONNECTION_INVALID);
    close!(bench, source.mr => NdkCloseMr);
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn who_gives_up_on_the_way_is_told_apart_from_who_refuses() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    let ask = |count: usize| {
        let (active, asked) = (connector(&bench, 0), bench.slot());
        assert_eq!(connect_with(&bench, active, ends[0].qp, PORT, &[], asked), PENDING);
        bench.wait("a connect event", || (requests.count() == count).then_some(()));
        let Call::Requested(passive) = requests.calls()[count - 1] else { unreachable!() };
        (active, asked, passive as *mut NDK_CONNECTOR)
    };
    // Closed without an answer: a rejection.
    let (active, asked, passive) = ask(1);
    close!(bench, passive => NdkCloseConnector);
    assert_eq!(bench.done(PENDING, asked), REFUSED);
    close!(bench, active => NdkCloseConnector);
    // Closed while the acceptance pends.
    let (active, asked, passive) = ask(2);
    let accepted = bench.slot();
    assert_eq!(accept_with(passive, ends[1].qp, &[], accepted, accepted), PENDING);
    assert_eq!(bench.done(PENDING, asked), SUCCESS);
    close!(bench, passive => NdkCloseConnector);
    assert_eq!(accepted.calls(), [Call::Done(ABORTED)]);
    assert_eq!(complete(active, bench.slot(), bench.slot()), ABORTED, "the acceptor has given up");
    close!(bench, active => NdkCloseConnector);
    // The active side closes before it completes; or it rejects the answer.
    for (count, is_rejected) in [(3, false), (4, true)] {
        let (active, asked, passive) = ask(count);
        let accepted = bench.slot();
        assert_eq!(accept_with(passive, ends[1].qp, &[], accepted, accepted), PENDING);
        assert_eq!(bench.done(PENDING, asked), SUCCESS);
        if is_rejected {
            assert_eq!(ndk!(active, NdkReject(b"no".as_ptr().cast(), 2)), SUCCESS);
        }
        close!(bench, active => NdkCloseConnector);
        // choice: a rejection of the answer is a refusal, with its data.
        assert_eq!(bench.done(PENDING, accepted), if is_rejected { REFUSED } else { ABORTED });
        assert_eq!(size_of_data(passive, 0), (SUCCESS, if is_rejected { 2 } else { 0 }));
        close!(bench, passive => NdkCloseConnector);
    }
    // Closed while the request pends.
    let (active, asked, passive) = ask(5);
    close!(bench, active => NdkCloseConnector);
    assert_eq!(asked.calls(), [Call::Done(ABORTED)]);
    let accepted = bench.slot();
    assert_eq!(accept_with(passive, ends[1].qp, &[], accepted, accepted), PENDING);
    assert_eq!(bench.done(PENDING, accepted), ABORTED);
    close!(bench, passive => NdkCloseConnector);
    // None of it has hurt the QPs.
    let (active, asked, passive) = ask(6);
    let connected = finish(&bench, &ends, active, passive, asked, listener);
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

// Closing.

#[test]
fn the_close_of_an_antecedent_is_over_only_when_that_of_its_last_successor_has_returned() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let region = bench.region(ends[1].pd, 64, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    let adapter = bench.sides[1].adapter;
    let order: Rc<RefCell<Vec<String>>> = Rc::default();
    let close_noting = |name: &'static str, close: NDK_FN_CLOSE_OBJECT, object: *mut c_void| {
        let order = Rc::clone(&order);
        let hook = hook(move |_| {
            order.borrow_mut().push(format!("{name} begins"));
            // Whoever looks for work meanwhile finds none.
            // SAFETY: the adapter is open.
            assert_eq!(unsafe { VerbenaProcessEvents(adapter) }, 0);
            order.borrow_mut().push(format!("{name} returns"));
        });
        // SAFETY: the object is live and not used any more.
        assert_eq!(unsafe { close.unwrap()(object.cast(), Some(call_plain), hook) }, PENDING);
    };
    let end = &ends[1];
    // Antecedents first.
    close_noting("pd", entry(end.pd, |table| table.NdkClosePd), end.pd.cast());
    close_noting("cq", entry(end.cq, |table| table.NdkCloseCq), end.cq.cast());
    close_noting("listener", entry(connected.listener, |table| table.NdkCloseListener), connected.listener.cast());
    close_noting("qp", entry(end.qp, |table| table.NdkCloseQp), end.qp.cast());
    close_noting("mr", entry(region.mr, |table| table.NdkCloseMr), region.mr.cast());
    bench.settle();
    assert_eq!(*order.borrow(), ["mr begins", "mr returns"], "the connector holds QP and listener, the QP its domain and its CQ");
    let connector = connected.connectors[1];
    close_noting("connector", entry(connector, |table| table.NdkCloseConnector), connector.cast());
    bench.wait("six closes", || (order.borrow().len() == 12).then_some(()));
    let order = order.borrow();
    for pair in order.chunks(2) {
        let name = pair[0].strip_suffix(" begins").expect("closes do not overlap");
        assert_eq!(pair[1], format!("{name} returns"));
    }
    let place = |name: &str| order.iter().position(|entry| entry.starts_with(name)).unwrap();
    for (successor, antecedent) in [("connector", "qp"), ("connector", "listener"), ("qp", "pd"), ("qp", "cq"), ("mr", "pd")] {
        assert!(place(successor) < place(antecedent), "{successor} before {antecedent}: {order:?}");
    }
    drop(order);
    close!(bench, connected.connectors[0] => NdkCloseConnector);
    let [active, _] = ends;
    active.close(&bench);
    bench.close();
}

/// Returns a callback's context that closes a connector inside the callback, and notes both.
fn closes_inside(connector: *mut NDK_CONNECTOR) -> (PVOID, Rc<RefCell<Vec<String>>>) {
    let order: Rc<RefCell<Vec<String>>> = Rc::default();
    let (noted, closed) = (Rc::clone(&order), Rc::clone(&order));
    let closed = hook(move |_| closed.borrow_mut().push("closed".to_owned()));
    let done = hook(move |status| {
        noted.borrow_mut().push(format!("done {:#x}", status as u32));
        assert_eq!(ndk!(connector, NdkCloseConnector(Some(call_plain), closed)), PENDING);
        noted.borrow_mut().push("returns".to_owned());
    });
    (done, order)
}

#[test]
fn a_connector_can_be_closed_inside_the_completion_of_its_own_request() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    let expected = |status: NTSTATUS| [format!("done {status:#x}"), "returns".to_owned(), "closed".to_owned()];
    let wait = |order: &Rc<RefCell<Vec<String>>>| bench.wait("three steps", || (order.borrow().len() == 3).then_some(()));
    let connect = |connector: *mut NDK_CONNECTOR, port, context| {
        let ((from, from_bytes), (to, to_bytes)) = (sockaddr(address(&bench, 0, 0)), sockaddr(address(&bench, 1, port)));
        let (from, to) = (from.as_ptr().cast(), to.as_ptr().cast());
        ndk!(connector, NdkConnect(ends[0].qp, from, from_bytes, to, to_bytes, 0, 0, null(), 0, Some(call_status), context))
    };

    // A request that is refused: the case that the reference warns of.
    let active = connector(&bench, 0);
    let (context, order) = closes_inside(active);
    assert_eq!(connect(active, PORT + 1, context), PENDING);
    wait(&order);
    assert_eq!(*order.borrow(), expected(REFUSED));

    // A request that succeeds, and the acceptance that fails by it.
    let active = connector(&bench, 0);
    let (context, order) = closes_inside(active);
    assert_eq!(connect(active, PORT, context), PENDING);
    let passive = requested(&bench, requests);
    let (passive_context, passive_order) = closes_inside(passive);
    let status = ndk!(passive, NdkAccept(ends[1].qp, 0, 0, null(), 0, None, null_mut(), Some(call_status), passive_context));
    assert_eq!(status, PENDING);
    wait(&order);
    assert_eq!(*order.borrow(), expected(SUCCESS));
    wait(&passive_order);
    assert_eq!(*passive_order.borrow(), expected(ABORTED));

    // A completion, and the acceptance that succeeds by it.
    let (active, asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(connect_with(&bench, active, ends[0].qp, PORT, &[], asked), PENDING);
    bench.settle();
    let Call::Requested(passive) = requests.calls()[1] else { unreachable!() };
    let passive = passive as *mut NDK_CONNECTOR;
    let (passive_context, passive_order) = closes_inside(passive);
    let event = bench.slot();
    let status =
        ndk!(passive, NdkAccept(ends[1].qp, 0, 0, null(), 0, Some(on_disconnected), event.context(), Some(call_status), passive_context));
    assert_eq!(status, PENDING);
    assert_eq!(bench.done(PENDING, asked), SUCCESS);
    let completed = bench.slot();
    assert_eq!(bench.done(complete(active, event, completed), completed), SUCCESS);
    wait(&passive_order);
    assert_eq!(*passive_order.borrow(), expected(SUCCESS));
    bench.wait("the event", || (event.count() > 0).then_some(()));
    assert_eq!(event.calls(), [Call::Disconnected], "of the active side: the other one has closed");
    close!(bench, active => NdkCloseConnector, listener => NdkCloseListener);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn a_connector_can_be_closed_inside_its_disconnect_event_and_inside_the_completion_of_its_disconnect() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let (listener, requests) = listen(&bench, PORT);
    let (active, asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(connect_with(&bench, active, ends[0].qp, PORT, &[], asked), PENDING);
    let passive = requested(&bench, requests);
    let order: Rc<RefCell<Vec<&str>>> = Rc::default();
    let (noted, closed) = (Rc::clone(&order), Rc::clone(&order));
    let closed = hook(move |_| closed.borrow_mut().push("closed"));
    let event = hook(move |_| {
        noted.borrow_mut().push("event");
        assert_eq!(ndk!(passive, NdkCloseConnector(Some(call_plain), closed)), PENDING);
        noted.borrow_mut().push("returns");
    });
    let accepted = bench.slot();
    let status = ndk!(passive, NdkAccept(ends[1].qp, 0, 0, null(), 0, Some(call_plain), event, Some(on_done), accepted.context()));
    assert_eq!((status, bench.done(PENDING, asked)), (PENDING, SUCCESS));
    let completed = bench.slot();
    assert_eq!(bench.done(complete(active, completed, completed), completed), SUCCESS);
    assert_eq!(bench.done(PENDING, accepted), SUCCESS);
    let (context, active_order) = closes_inside(active);
    assert_eq!(ndk!(active, NdkDisconnect(Some(call_status), context)), PENDING);
    bench.wait("both closes", || (order.borrow().len() + active_order.borrow().len() == 6).then_some(()));
    assert_eq!(*order.borrow(), ["event", "returns", "closed"]);
    assert_eq!(*active_order.borrow(), ["done 0x0", "returns", "closed"]);
    bench.settle();
    assert_eq!(completed.calls(), [Call::Done(SUCCESS)], "and no event for the one who has disconnected");
    close!(bench, listener => NdkCloseListener);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn a_request_is_answered_inside_its_connect_event() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let [closes, rejects] = ["closes", "rejects"].map(|what| {
        let closed = bench.slot();
        let requests = hook(move |connector| {
            let connector = connector as *mut NDK_CONNECTOR;
            if what == "rejects" {
                assert_eq!(ndk!(connector, NdkReject(null(), 0)), SUCCESS);
            }
            assert_eq!(ndk!(connector, NdkCloseConnector(Some(on_closed), closed.context())), PENDING);
        });
        (requests, closed)
    });
    for ((context, closed), port) in [(closes, PORT), (rejects, PORT + 1)] {
        let mut listener = null_mut();
        let adapter = bench.sides[1].adapter;
        let slot = bench.slot();
        assert_eq!(
            ndk!(adapter, NdkCreateListener(Some(call_requested), context, Some(on_created), slot.context(), &mut listener)),
            SUCCESS
        );
        assert_eq!(listen_at(listener, address(&bench, 1, port)), SUCCESS);
        let (active, asked) = (connector(&bench, 0), bench.slot());
        assert_eq!(connect_with(&bench, active, ends[0].qp, port, &[], asked), PENDING);
        assert_eq!(bench.done(PENDING, asked), REFUSED);
        bench.closed(closed);
        close!(bench, active => NdkCloseConnector, listener => NdkCloseListener);
    }
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn a_listener_refuses_from_its_close_on_and_is_closed_when_its_connectors_are() {
    let bench = Bench::new();
    let ends = End::both(&bench);
    let more = End::new(&bench, 0);
    let (listener, requests) = listen(&bench, PORT);
    let (active, asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(connect_with(&bench, active, ends[0].qp, PORT, &[], asked), PENDING);
    let passive = requested(&bench, requests);
    // A second request is under way when the close comes.
    let (late, late_asked) = (connector(&bench, 0), bench.slot());
    assert_eq!(connect_with(&bench, late, more.qp, PORT, &[], late_asked), PENDING);
    let closing = bench.close_object(entry(listener, |table| table.NdkCloseListener), listener.cast());
    assert_eq!(bench.done(PENDING, late_asked), REFUSED);
    assert_eq!((requests.count(), closing.count()), (1, 0));
    // What came before goes on as if nothing had happened.
    let (accepted, event) = (bench.slot(), bench.slot());
    assert_eq!(accept_with(passive, ends[1].qp, &[], event, accepted), PENDING);
    assert_eq!(bench.done(PENDING, asked), SUCCESS);
    let completed = bench.slot();
    assert_eq!(bench.done(complete(active, event, completed), completed), SUCCESS);
    assert_eq!(bench.done(PENDING, accepted), SUCCESS);
    assert_eq!(bench.write(ends[0].qp, 1, &[], 0, 0, 0), SUCCESS);
    assert_eq!(bench.reap(ends[0].cq, 1)[0].status, SUCCESS);
    let other = new_listener(&bench, 1, requests);
    assert_eq!(listen_at(other, address(&bench, 1, PORT)), IN_USE, "the connection has the address");
    bench.settle();
    assert_eq!(closing.count(), 0);
    close!(bench, passive => NdkCloseConnector);
    bench.closed(closing);
    assert_eq!(listen_at(other, address(&bench, 1, PORT)), SUCCESS);
    close!(bench, active => NdkCloseConnector, late => NdkCloseConnector, other => NdkCloseListener);
    close_ends(&bench, ends.into_iter().chain([more]));
    bench.close();
}

#[test]
fn the_close_of_an_adapter_returns_when_every_object_is_closed() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let (lam, sink) = start_big_write(&bench, &ends);
    let endpoint = shared_endpoint(&bench, 0, 0).unwrap();
    // Pending requests of both sides, none of which will be answered.
    let (unanswered, asked) = (connector(&bench, 0), bench.slot());
    let spare = End::new(&bench, 0);
    let (listener, _) = listen(&bench, PORT);
    assert_eq!(connect_with(&bench, unanswered, spare.qp, PORT, &[], asked), PENDING);
    let mut slots = Vec::new();
    macro_rules! start {
        ($($object:expr => $close:ident),* $(,)?) => {
            $( slots.push(bench.close_object(entry($object, |table| table.$close), $object.cast())); )*
        };
    }
    start!(
        spare.pd => NdkClosePd,
        spare.cq => NdkCloseCq,
        spare.qp => NdkCloseQp,
        endpoint => NdkCloseSharedEndpoint,
        listener => NdkCloseListener,
        connected.listener => NdkCloseListener,
        sink.mr => NdkCloseMr,
        connected.connectors[0] => NdkCloseConnector,
        connected.connectors[1] => NdkCloseConnector,
        unanswered => NdkCloseConnector,
    );
    for end in &ends {
        start!(end.pd => NdkClosePd, end.cq => NdkCloseCq, end.qp => NdkCloseQp);
    }
    // The mapping holds the adapter too: while the write reads from it, it stays.
    bench.wait("the end of the write", || (slots[7].count() > 0).then_some(()));
    lam.release(&bench, 0);
    bench.close();
    assert!(slots.iter().all(|slot| slot.calls() == [Call::Closed]), "each of them once, before the adapter's close returns");
    assert_eq!(asked.calls(), [Call::Done(ABORTED)]);
}

#[test]
fn the_close_of_an_adapter_blocks_as_long_as_an_object_is_open() {
    let mut bench = Bench::new();
    let pd = bench.pd(0);
    let (device, adapter) = (bench.sides[0].device as usize, bench.sides[0].adapter as usize);
    let is_over = Arc::new(AtomicBool::new(false));
    let over = Arc::clone(&is_over);
    let closer = std::thread::spawn(move || {
        // SAFETY: nobody else uses the adapter any more.
        unsafe { VerbenaCloseNdkAdapter(device as NDIS_HANDLE, adapter as *mut NDK_ADAPTER) };
        over.store(true, Ordering::SeqCst);
    });
    std::thread::sleep(Duration::from_millis(100));
    assert!(!is_over.load(Ordering::SeqCst));
    let closing = bench.close_object(entry(pd, |table| table.NdkClosePd), pd.cast());
    closer.join().unwrap();
    assert_eq!((closing.calls(), is_over.load(Ordering::SeqCst)), (vec![Call::Closed], true), "called by the thread that closes");
    assert_eq!(bench.sides[0].card.mappings(), 0);
    bench.sides[0].adapter = null_mut();
    bench.close();
}

// ------------------------------------------------------------------------------------------------------------------------------
// Memory: regions (NDK_MR) and logical address mappings.
// ------------------------------------------------------------------------------------------------------------------------------

#[test]
fn a_region_is_registered_by_a_chain_of_descriptors() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let buffer = Buffer::new(10_000, 1_234);
    // Three pieces, none of which ends at a page; the region ends inside of the last one.
    let mut chain = Chain::of(&buffer, &[(0, 3_000), (3_000, 1), (3_001, 6_999)]);
    let mr = new_mr(&bench, ends[0].pd, false);
    assert_eq!(register(&bench, mr, chain.first(), 9_000, 0), SUCCESS);
    // The chain is the consumer's again.
    drop(chain);
    let (local, remote) = (ndk!(mr, NdkGetLocalTokenFromMr()), ndk!(mr, NdkGetRemoteTokenFromMr()));
    assert_ne!(local, 0);
    assert_eq!(local, remote, "choice: one token for both");
    buffer.bytes.iter().enumerate().for_each(|(index, byte)| byte.set(index as u8 ^ 0x5A));
    let sink = bench.region(ends[1].pd, 10_000, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    let sge = |offset: usize, len: u32| NDK_SGE { Address: buffer.va() + offset as u64, Length: len, MemoryRegionToken: local };
    assert_eq!(bench.write(ends[0].qp, 1, &[sge(2_990, 3_000)], sink.va(0), sink.token, 0), SUCCESS);
    assert_eq!(bench.write(ends[0].qp, 2, &[sge(0, 9_000)], sink.va(0), sink.token, 0), SUCCESS);
    assert_eq!(bench.reap(ends[0].cq, 2).iter().map(|entry| entry.status).collect::<Vec<_>>(), [SUCCESS; 2]);
    let expected: Vec<u8> = (0..9_000).map(|index| index as u8 ^ 0x5A).collect();
    assert!(sink.read(0, 9_000) == expected);
    assert_eq!(sink.read(9_000, 1), [0xEE]);
    assert_eq!(bench.write(ends[0].qp, 3, &[sge(0, 9_001)], sink.va(0), sink.token, 0), SUCCESS);
    assert_eq!(bench.reap(ends[0].cq, 1)[0].status, NO_ACCESS, "the region ends where it was said to");
    close!(bench, mr => NdkCloseMr, sink.mr => NdkCloseMr);
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn what_can_not_be_registered_is_refused_inline() {
    let bench = Bench::new();
    let pd = bench.pd(0);
    let buffer = Buffer::new(8_192, 0);
    let mr = new_mr(&bench, pd, false);
    let before = bench.sides[0].card.mappings();
    for pieces in [
        &[(0, 100), (101, 100)][..], // a gap
        &[(0, 100), (99, 100)],      // twice the same byte
        &[(100, 100), (0, 100)],     // the wrong order
        &[(0, 100), (100, 50), (4_096, 50)],
    ] {
        assert_eq!(register(&bench, mr, Chain::of(&buffer, pieces).first(), 200, 0), INVALID_PARAMETER, "{pieces:?}");
    }
    assert_eq!(register(&bench, mr, Chain::of(&buffer, &[(0, 100)]).first(), 101, 0), INVALID_PARAMETER, "longer than the chain");
    assert_eq!(register(&bench, mr, Chain::of(&buffer, &[(0, 100)]).first(), 0, 0), INVALID_PARAMETER, "no bytes");
    assert_eq!(register(&bench, mr, null_mut(), 100, 0), INVALID_PARAMETER, "no memory");
    assert_eq!(register(&bench, mr, Chain::of(&buffer, &[(0, 100)]).first(), 100, 0x10), INVALID_PARAMETER, "a flag that there is not");
    let mut chain = Chain::of(&buffer, &[(0, 100)]);
    assert_eq!(ndk!(mr, NdkRegisterMr(chain.first(), 100, 0, None, null_mut())), INVALID_PARAMETER, "no completion");
    // A gap behind the end does not matter.
    assert_eq!(register(&bench, mr, Chain::of(&buffer, &[(0, 100), (200, 100)]).first(), 100, 0), SUCCESS);
    let slot = bench.slot();
    assert_eq!(bench.done(ndk!(mr, NdkDeregisterMr(Some(on_done), slot.context())), slot), SUCCESS);
    assert_eq!(bench.sides[0].card.mappings(), before);
    close!(bench, mr => NdkCloseMr, pd => NdkClosePd);
    bench.close();
}

#[test]
fn any_or_of_the_flags_is_taken_and_gives_the_rights_that_it_names() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let mut connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let mut qps = ends.each_ref().map(|end| end.qp);
    for flags in 0..16 {
        let region = bench.region(ends[1].pd, 8, flags);
        assert_eq!(bench.write(qps[0], 1, &[], region.va(0), region.token, 0), SUCCESS);
        assert_eq!(bench.reap(ends[0].cq, 1)[0].status, SUCCESS, "no bytes need no right");
        let source = bench.region(ends[0].pd, 8, flags);
        source.fill(0, b"8 bytes.");
        assert_eq!(bench.write(qps[0], 2, &[source.sge(0, 8)], region.va(0), region.token, 0), SUCCESS);
        let is_writable = flags & NDK_MR_FLAG_ALLOW_REMOTE_WRITE == NDK_MR_FLAG_ALLOW_REMOTE_WRITE;
        // Reading as a source is always allowed.
        assert_eq!(bench.reap(ends[0].cq, 1)[0].status, if is_writable { SUCCESS } else { NO_ACCESS }, "flags {flags:#x}");
        assert_eq!(region.read(0, 8), if is_writable { *b"8 bytes." } else { [0xEE; 8] });
        close!(bench, region.mr => NdkCloseMr, source.mr => NdkCloseMr);
        if !is_writable {
            // The connection is over.
            close_connected(&bench, &connected);
            close!(bench, qps[0] => NdkCloseQp, qps[1] => NdkCloseQp);
            qps = ends.each_ref().map(|end| bench.qp(end.pd, end.cq, end.cq, QpSize::default()));
            connected = bench.connect(qps);
        }
    }
    close_connected(&bench, &connected);
    close!(bench, qps[0] => NdkCloseQp, qps[1] => NdkCloseQp);
    for end in ends {
        close!(bench, end.cq => NdkCloseCq, end.pd => NdkClosePd);
    }
    bench.close();
}

#[test]
fn a_token_is_of_one_registration() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let mappings = bench.sides[1].card.mappings();
    let buffer = Buffer::new(4_096, 0);
    let mr = new_mr(&bench, ends[1].pd, false);
    assert_eq!((ndk!(mr, NdkGetLocalTokenFromMr()), ndk!(mr, NdkGetRemoteTokenFromMr())), (0, 0), "there is none before");
    let deregister = || {
        let slot = bench.slot();
        bench.done(ndk!(mr, NdkDeregisterMr(Some(on_done), slot.context())), slot)
    };
    let mut tokens = Vec::new();
    for _ in 0..300 {
        assert_eq!(register(&bench, mr, Chain::of(&buffer, &[(0, 4_096)]).first(), 4_096, NDK_MR_FLAG_ALLOW_REMOTE_WRITE), SUCCESS);
        tokens.push(ndk!(mr, NdkGetRemoteTokenFromMr()));
        assert_eq!(bench.sides[1].card.mappings(), mappings + 1);
        assert_eq!(deregister(), SUCCESS);
        assert_eq!((ndk!(mr, NdkGetRemoteTokenFromMr()), bench.sides[1].card.mappings()), (0, mappings));
    }
    let last = tokens[299];
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 300);
    assert_ne!(tokens[0], 0);

    assert_eq!(register(&bench, mr, Chain::of(&buffer, &[(0, 4_096)]).first(), 4_096, NDK_MR_FLAG_ALLOW_REMOTE_WRITE), SUCCESS);
    assert_eq!(register(&bench, mr, Chain::of(&buffer, &[(0, 4_096)]).first(), 4_096, 0), BAD_STATE, "choice: it is registered");
    buffer.bytes[0].set(0xEE);
    let source = bench.region(ends[0].pd, 8, 0);
    source.fill(0, &[1; 8]);
    assert_eq!(bench.write(ends[0].qp, 1, &[source.sge(0, 1)], buffer.va(), ndk!(mr, NdkGetRemoteTokenFromMr()), 0), SUCCESS);
    assert_eq!((bench.reap(ends[0].cq, 1)[0].status, buffer.bytes[0].get()), (SUCCESS, 1));
    buffer.bytes[0].set(0xEE);
    assert_eq!(bench.write(ends[0].qp, 2, &[source.sge(0, 1)], buffer.va(), last, 0), SUCCESS);
    assert_eq!((bench.reap(ends[0].cq, 1)[0].status, buffer.bytes[0].get()), (NO_ACCESS, 0xEE), "an old token is as good as none");
    // A close takes a registration with it.
    close!(bench, mr => NdkCloseMr, source.mr => NdkCloseMr);
    assert_eq!(bench.sides[1].card.mappings(), mappings);
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn deregistering_what_is_not_registered_is_refused_inline() {
    let bench = Bench::new();
    let pd = bench.pd(0);
    for is_fast in [false, true] {
        let mr = new_mr(&bench, pd, is_fast);
        let slot = bench.slot();
        if is_fast {
            assert_eq!(ndk!(mr, NdkInitializeFastRegisterMr(16, 1, Some(on_done), slot.context())), SUCCESS);
        }
        let (number, context) = (mr as usize, slot.context() as usize);
        // On a thread of its own: a call that does not return would hold the test forever.
        let call = std::thread::spawn(move || ndk!(number as *mut NDK_MR, NdkDeregisterMr(Some(on_done), context as PVOID)));
        for _ in 0..100 {
            if call.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(call.is_finished(), "NdkDeregisterMr does not return");
        // choice: a call that the state does not allow.
        assert_eq!((call.join().unwrap(), slot.count()), (BAD_STATE, 0));
        assert_eq!(ndk!(mr, NdkGetLocalTokenFromMr()) != 0, is_fast, "nothing has changed");
        close!(bench, mr => NdkCloseMr);
    }
    close!(bench, pd => NdkClosePd);
    bench.close();
}

#[test]
fn a_region_closed_while_it_is_being_registered_is_closed_behind_that() {
    let bench = Bench::new();
    let pd = bench.pd(0);
    let before = bench.sides[0].card.mappings();
    let buffer = Buffer::new(100, 7);
    let mr = new_mr(&bench, pd, false);
    let order: Rc<RefCell<Vec<String>>> = Rc::default();
    let (done, closed) = (Rc::clone(&order), Rc::clone(&order));
    let done = hook(move |status| done.borrow_mut().push(format!("done {status:#x}")));
    let closed = hook(move |_| closed.borrow_mut().push("closed".to_owned()));
    let mut chain = Chain::of(&buffer, &[(0, 100)]);
    assert_eq!(ndk!(mr, NdkRegisterMr(chain.first(), 100, 0, Some(call_status), done)), PENDING);
    assert_eq!(ndk!(mr, NdkCloseMr(Some(call_plain), closed)), PENDING);
    bench.wait("the close", || (order.borrow().len() == 2).then_some(()));
    assert_eq!(*order.borrow(), ["done 0x0", "closed"]);
    assert_eq!(bench.sides[0].card.mappings(), before);
    close!(bench, pd => NdkClosePd);
    bench.close();
}

#[test]
fn a_region_for_fast_registration_has_one_token_from_its_initialisation_on() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let pd = ends[1].pd;
    let fast = new_mr(&bench, pd, true);
    let initialise = |mr: *mut NDK_MR, pages| {
        let slot = bench.slot();
        bench.done(ndk!(mr, NdkInitializeFastRegisterMr(pages, 1, Some(on_done), slot.context())), slot)
    };
    assert_eq!(ndk!(fast, NdkGetRemoteTokenFromMr()), 0);
    assert_eq!([0, 257, u32::MAX].map(|pages| initialise(fast, pages)), [LIMIT; 3]);
    assert_eq!(ndk!(fast, NdkGetRemoteTokenFromMr()), 0);
    assert_eq!(initialise(fast, 256), SUCCESS);
    let token = ndk!(fast, NdkGetRemoteTokenFromMr());
    assert_ne!(token, 0);
    assert_eq!(ndk!(fast, NdkGetLocalTokenFromMr()), token);
    bench.settle();
    assert_eq!(ndk!(fast, NdkGetRemoteTokenFromMr()), token);
    assert_eq!(initialise(fast, 257), LIMIT);
    assert_eq!(ndk!(fast, NdkGetRemoteTokenFromMr()), token, "a failure changes nothing");
    assert_eq!(initialise(fast, 16), SUCCESS, "more than once is legal");
    assert_ne!(ndk!(fast, NdkGetRemoteTokenFromMr()), 0);
    // Many at once have different tokens.
    let more: Vec<_> = (0..64).map(|_| new_mr(&bench, pd, true)).collect();
    assert!(more.iter().all(|mr| initialise(*mr, 256) == SUCCESS));
    let mut tokens: Vec<_> = more.iter().chain([&fast]).map(|mr| ndk!(*mr, NdkGetRemoteTokenFromMr())).collect();
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 65);

    // The kinds exclude each other.
    let buffer = Buffer::new(100, 0);
    assert_eq!(register(&bench, fast, Chain::of(&buffer, &[(0, 100)]).first(), 100, 0), BAD_STATE);
    let plain = new_mr(&bench, pd, false);
    assert_eq!(initialise(plain, 16), BAD_STATE);

    // Nothing is behind the token yet.
    let source = bench.region(ends[0].pd, 8, 0);
    let token = ndk!(fast, NdkGetRemoteTokenFromMr());
    assert_eq!(bench.write(ends[0].qp, 1, &[source.sge(0, 8)], buffer.va(), token, 0), SUCCESS);
    assert_eq!(bench.reap(ends[0].cq, 1)[0].status, NO_ACCESS);
    for mr in more.into_iter().chain([fast, plain, source.mr]) {
        close!(bench, mr => NdkCloseMr);
    }
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn the_size_of_a_mapping_can_be_asked_for() {
    let bench = Bench::new();
    let before = bench.sides[0].card.mappings();
    for (len, offset, pages) in [(1, 0, 1), (4_096, 0, 1), (4_096, 1, 2), (4_097, 0, 2), (1, 4_095, 1), (2, 4_095, 2), (100_000, 5, 25)] {
        let buffer = Buffer::new(len, offset);
        let needed = 16 + 8 * pages;
        let mut chain = Chain::of(&buffer, &[(0, len)]);
        assert_eq!(build_lam(&bench, 0, chain.first(), len, &mut [], true), (TOO_SMALL, needed, 99), "{len} bytes at {offset}");
        let mut small = vec![CANARY_WORD; needed as usize / 8 - 1];
        assert_eq!(build_lam(&bench, 0, chain.first(), len, &mut small, false), (TOO_SMALL, needed, 99));
        assert!(small.iter().all(|word| *word == CANARY_WORD), "nothing is written");
        assert_eq!(bench.sides[0].card.mappings(), before, "and nothing is mapped");
        let mut place = vec![CANARY_WORD; needed as usize / 8 + 2];
        assert_eq!(build_lam(&bench, 0, chain.first(), len, &mut place, false), (SUCCESS, needed, offset as u32));
        assert_eq!(place[1] as u32, pages);
        assert!(place[2..2 + pages as usize].iter().all(|page| page % 4_096 == 0 && *page != 0), "{place:x?}");
        assert!(place[2 + pages as usize..].iter().all(|word| *word == CANARY_WORD), "nothing beyond");
        ndk!(bench.sides[0].adapter, NdkReleaseLAM(place.as_mut_ptr().cast()));
        // choice: it is unmapped when the card says that nothing is under way.
        bench.wait("the mapping to be gone", || (bench.sides[0].card.mappings() == before).then_some(()));
    }
    bench.close();
}

#[test]
fn what_can_not_be_mapped_is_refused_inline() {
    let bench = Bench::new();
    let before = bench.sides[0].card.mappings();
    let buffer = Buffer::new(8_192, 0);
    let mut place = [CANARY_WORD; 8];
    let build =
        |place: &mut [u64], pieces: &[(usize, usize)], len| build_lam(&bench, 0, Chain::of(&buffer, pieces).first(), len, place, false).0;
    assert_eq!(build(&mut place, &[(0, 100), (101, 100)], 200), INVALID_PARAMETER, "not contiguous");
    assert_eq!(build(&mut place, &[(0, 100)], 101), INVALID_PARAMETER, "longer than the chain");
    assert_eq!(build(&mut place, &[(0, 100)], 0), INVALID_PARAMETER, "no bytes");
    assert_eq!(build_lam(&bench, 0, null_mut(), 100, &mut place, false).0, INVALID_PARAMETER, "no memory");
    assert_eq!((place, bench.sides[0].card.mappings()), ([CANARY_WORD; 8], before));
    bench.close();
}

#[test]
fn the_pages_of_a_mapping_are_those_of_the_buffer() {
    let mut bench = Bench::new();
    let ends = End::both(&bench);
    let connected = bench.connect(ends.each_ref().map(|end| end.qp));
    let (len, offset) = (10_000, 3_333);
    let buffer = Buffer::new(len, offset);
    buffer.bytes.iter().enumerate().for_each(|(index, byte)| byte.set((index / 7) as u8));
    let mut chain = Chain::of(&buffer, &[(0, 5_000), (5_000, 5_000)]);
    let mut place = vec![0u64; 2 + 4];
    let (status, size, fbo) = build_lam(&bench, 0, chain.first(), len, &mut place, false);
    assert_eq!((status, size, fbo), (SUCCESS, 16 + 8 * 4, offset as u32));
    // Microsoft's sample frees the descriptors at once.
    chain.spoil();
    drop(chain);
    let sink = bench.region(ends[1].pd, len, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
    let token = privileged(ends[0].pd);
    // One request for each page, by the rules alone: entries need not be adjacent.
    let (mut sent, mut at) = (0, offset);
    for page in &place[2..] {
        let piece = (4_096 - at).min(len - sent);
        let sge = NDK_SGE { Address: page + at as u64, Length: piece as u32, MemoryRegionToken: token };
        assert_eq!(bench.write(ends[0].qp, 1, &[sge], sink.va(sent), sink.token, 0), SUCCESS);
        (sent, at) = (sent + piece, 0);
    }
    assert_eq!(sent, len);
    assert!(bench.reap(ends[0].cq, 4).iter().all(|entry| entry.status == SUCCESS));
    assert!(sink.read(0, len).iter().enumerate().all(|(index, byte)| *byte == (index / 7) as u8));
    ndk!(bench.sides[0].adapter, NdkReleaseLAM(place.as_mut_ptr().cast()));
    close!(bench, sink.mr => NdkCloseMr);
    close_connected(&bench, &connected);
    close_ends(&bench, ends);
    bench.close();
}

#[test]
fn the_privileged_token_is_for_its_own_side_and_its_own_domain_alone() {
    // A peer that uses it is refused, and so is a QP of another domain.
    for is_peer in [true, false] {
        let mut bench = Bench::new();
        let ends = End::both(&bench);
        let other = bench.pd(0);
        let connected = bench.connect(ends.each_ref().map(|end| end.qp));
        let buffer = Buffer::new(4_096, 0);
        let side = usize::from(is_peer);
        let lam = Lam::build(&bench, side, &buffer);
        let source = bench.region(ends[0].pd, 64, 0);
        let sink = bench.region(ends[1].pd, 64, NDK_MR_FLAG_ALLOW_REMOTE_WRITE);
        let tokens = [privileged(ends[0].pd), privileged(ends[1].pd), privileged(other)];
        assert!(tokens.iter().all(|token| *token != 0));
        assert_eq!(privileged(ends[1].pd), tokens[1], "it stays");
        let status = if is_peer {
            bench.write(ends[0].qp, 1, &[source.sge(0, 64)], lam.pages()[0], tokens[1], 0)
        } else {
            let sge = NDK_SGE { Address: lam.pages()[0], Length: 64, MemoryRegionToken: tokens[2] };
            bench.write(ends[0].qp, 1, &[sge], sink.va(0), sink.token, 0)
        };
        assert_eq!(status, SUCCESS);
        assert_eq!(bench.reap(ends[0].cq, 1)[0].status, NO_ACCESS);
        assert!(buffer.bytes.iter().all(|byte| byte.get() == CANARY));
        assert_eq!(sink.read(0, 64), [0xEE; 64]);
        lam.release(&bench, side);
        close!(bench, source.mr => NdkCloseMr, sink.mr => NdkCloseMr, other => NdkClosePd);
        close_connected(&bench, &connected);
        close_ends(&bench, ends);
        bench.close();
    }
}

// ------------------------------------------------------------------------------------------------------------------------------
// Helpers.
// ------------------------------------------------------------------------------------------------------------------------------

const CANARY: u8 = 0xEE;
const CANARY_WORD: u64 = 0xEEEE_EEEE_EEEE_EEEE;

/// What a side needs for one connection.
struct End {
    pd: *mut NDK_PD,
    cq: *mut NDK_CQ,
    qp: *mut NDK_QP,
}

impl End {
    fn new(bench: &Bench, side: usize) -> Self {
        let (pd, (cq, _)) = (bench.pd(side), bench.cq(side, 32));
        Self { pd, cq, qp: bench.qp(pd, cq, cq, QpSize::default()) }
    }

    fn both(bench: &Bench) -> [Self; 2] {
        [0, 1].map(|side| Self::new(bench, side))
    }

    fn close(self, bench: &Bench) {
        close!(bench, self.qp => NdkCloseQp, self.cq => NdkCloseCq, self.pd => NdkClosePd);
    }
}

fn close_ends(bench: &Bench, ends: impl IntoIterator<Item = End>) {
    ends.into_iter().for_each(|end| end.close(bench));
}

/// Returns an entry of an object's table.
fn entry<K: HasTable, F>(object: *mut K, get: impl FnOnce(&K::Table) -> F) -> F {
    // SAFETY: a test's objects are live; all begin with header and table.
    get(unsafe { &*K::table(object) })
}

/// An object with a table.
trait HasTable {
    type Table;
    /// # Safety
    /// The object is live.
    unsafe fn table(object: *mut Self) -> *const Self::Table;
}

macro_rules! has_table {
    ($($object:ident: $table:ident),* $(,)?) => {$(
        impl HasTable for $object {
            type Table = $table;
            unsafe fn table(object: *mut Self) -> *const $table {
                // SAFETY: the caller's.
                unsafe { (*object).Dispatch }
            }
        }
    )*};
}

has_table!(
    NDK_PD: NDK_PD_DISPATCH,
    NDK_CQ: NDK_CQ_DISPATCH,
    NDK_QP: NDK_QP_DISPATCH,
    NDK_MR: NDK_MR_DISPATCH,
    NDK_CONNECTOR: NDK_CONNECTOR_DISPATCH,
    NDK_LISTENER: NDK_LISTENER_DISPATCH,
    NDK_SHARED_ENDPOINT: NDK_SHARED_ENDPOINT_DISPATCH,
);

/// Closes an adapter and opens its card in another way.
fn reopen(bench: &mut Bench, side: usize, handle: Box<CardHandle>, version: (u16, u16)) {
    let old = &mut bench.sides[side];
    // SAFETY: nothing was created from the adapter.
    unsafe {
        VerbenaCloseNdkAdapter(old.device, old.adapter);
        VerbenaCloseDevice(old.device);
    }
    old.device = handle.into_raw();
    old.adapter = open(old.device, version.0, version.1).expect("the adapter is opened");
}

fn address(bench: &Bench, side: usize, port: u16) -> SocketAddr {
    (bench.sides[side].ip, port).into()
}

fn connector(bench: &Bench, side: usize) -> *mut NDK_CONNECTOR {
    let mut connector = null_mut();
    let slot = bench.slot();
    assert_eq!(ndk!(bench.sides[side].adapter, NdkCreateConnector(Some(on_created), slot.context(), &mut connector)), SUCCESS);
    connector
}

fn new_listener(bench: &Bench, side: usize, requests: &Slot) -> *mut NDK_LISTENER {
    let mut listener = null_mut();
    let (adapter, slot) = (bench.sides[side].adapter, bench.slot());
    let context = requests.context();
    assert_eq!(ndk!(adapter, NdkCreateListener(Some(on_requested), context, Some(on_created), slot.context(), &mut listener)), SUCCESS);
    listener
}

fn listen_at(listener: *mut NDK_LISTENER, at: SocketAddr) -> NTSTATUS {
    let (bytes, len) = sockaddr(at);
    // A listen never pends, so nothing is called.
    ndk!(listener, NdkListen(bytes.as_ptr().cast(), len, Some(call_status), null_mut()))
}

/// Listens on the passive side.
fn listen(bench: &Bench, port: u16) -> (*mut NDK_LISTENER, &'static Slot) {
    let requests = bench.slot();
    let listener = new_listener(bench, 1, requests);
    assert_eq!(listen_at(listener, address(bench, 1, port)), SUCCESS);
    (listener, requests)
}

fn shared_endpoint(bench: &Bench, side: usize, port: u16) -> Result<*mut NDK_SHARED_ENDPOINT, NTSTATUS> {
    let mut endpoint = null_mut();
    let (at, len) = sockaddr(address(bench, side, port));
    let (adapter, slot) = (bench.sides[side].adapter, bench.slot());
    match ndk!(adapter, NdkCreateSharedEndpoint(at.as_ptr().cast(), len, Some(on_created), slot.context(), &mut endpoint)) {
        SUCCESS => Ok(endpoint),
        status => Err(status),
    }
}

fn connect_from(connector: *mut NDK_CONNECTOR, qp: *mut NDK_QP, from: SocketAddr, to: SocketAddr, data: &[u8], slot: &Slot) -> NTSTATUS {
    let ((from, from_bytes), (to, to_bytes)) = (sockaddr(from), sockaddr(to));
    let (from, to, data_at, data_bytes) = (from.as_ptr().cast(), to.as_ptr().cast(), data.as_ptr().cast(), data.len() as u32);
    ndk!(connector, NdkConnect(qp, from, from_bytes, to, to_bytes, 0, 0, data_at, data_bytes, Some(on_done), slot.context()))
}

/// Asks the passive side for a connection.
fn connect_with(bench: &Bench, connector: *mut NDK_CONNECTOR, qp: *mut NDK_QP, port: u16, data: &[u8], slot: &Slot) -> NTSTATUS {
    connect_from(connector, qp, address(bench, 0, 0), address(bench, 1, port), data, slot)
}

/// Waits for the first request of a listener.
fn requested(bench: &Bench, requests: &Slot) -> *mut NDK_CONNECTOR {
    match bench.wait("a connect event", || requests.calls().first().copied()) {
        Call::Requested(connector) => connector as *mut NDK_CONNECTOR,
        other => panic!("a connect event is {other:?}"),
    }
}

fn accept_with(connector: *mut NDK_CONNECTOR, qp: *mut NDK_QP, data: &[u8], event: &Slot, slot: &Slot) -> NTSTATUS {
    let (at, bytes) = (data.as_ptr().cast(), data.len() as u32);
    ndk!(connector, NdkAccept(qp, 0, 0, at, bytes, Some(on_disconnected), event.context(), Some(on_done), slot.context()))
}

fn complete(connector: *mut NDK_CONNECTOR, event: &Slot, slot: &Slot) -> NTSTATUS {
    ndk!(connector, NdkCompleteConnect(Some(on_disconnected), event.context(), Some(on_done), slot.context()))
}

fn disconnect(connector: *mut NDK_CONNECTOR, slot: &Slot) -> NTSTATUS {
    ndk!(connector, NdkDisconnect(Some(on_done), slot.context()))
}

/// Does what is left to do for a request that has arrived.
fn finish(
    bench: &Bench,
    ends: &[End; 2],
    active: *mut NDK_CONNECTOR,
    passive: *mut NDK_CONNECTOR,
    asked: &Slot,
    listener: *mut NDK_LISTENER,
) -> Connected {
    let (accepted, completed, events) = (bench.slot(), bench.slot(), [bench.slot(), bench.slot()]);
    assert_eq!(accept_with(passive, ends[1].qp, &[], events[1], accepted), PENDING);
    assert_eq!(bench.done(PENDING, asked), SUCCESS);
    assert_eq!(bench.done(complete(active, events[0], completed), completed), SUCCESS);
    assert_eq!(bench.done(PENDING, accepted), SUCCESS);
    Connected { qps: [ends[0].qp, ends[1].qp], connectors: [active, passive], events, listener }
}

fn close_connected(bench: &Bench, connected: &Connected) {
    let [active, passive] = connected.connectors;
    close!(bench, active => NdkCloseConnector, passive => NdkCloseConnector, connected.listener => NdkCloseListener);
}

fn receive(qp: *mut NDK_QP, request: u64) -> NTSTATUS {
    ndk!(qp, NdkReceive(request as PVOID, null(), 0))
}

fn regions(bench: &Bench, ends: &[End; 2], len: usize) -> (Region, Region) {
    (bench.region(ends[0].pd, len, 0), bench.region(ends[1].pd, len, NDK_MR_FLAG_ALLOW_REMOTE_WRITE))
}

fn privileged(pd: *mut NDK_PD) -> u32 {
    let mut token = 0;
    ndk!(pd, NdkGetPrivilegedMemoryRegionToken(&mut token));
    token
}

/// Asks for private data with a buffer of `size` bytes: status, length, buffer.
fn data(connector: *mut NDK_CONNECTOR, size: usize) -> (NTSTATUS, u32, Vec<u8>) {
    // A pointer that is not null also for no bytes, and canaries behind the end.
    let mut buffer = vec![CANARY; size + 8];
    let mut len = size as u32;
    let status = ndk!(connector, NdkGetConnectionData(null_mut(), null_mut(), buffer.as_mut_ptr().cast(), &mut len));
    assert_eq!(buffer[size..], [CANARY; 8]);
    buffer.truncate(size);
    (status, len, buffer)
}

/// Asks without a buffer.
fn size_of_data(connector: *mut NDK_CONNECTOR, given: u32) -> (NTSTATUS, u32) {
    let mut len = given;
    (ndk!(connector, NdkGetConnectionData(null_mut(), null_mut(), null_mut(), &mut len)), len)
}

/// Asks for an address with a buffer of `given` bytes, in one of 40: status, length, buffer.
fn ask_address(given: u32, ask: impl Fn(*mut SOCKADDR, *mut u32) -> NTSTATUS) -> (NTSTATUS, u32, Vec<u8>) {
    let (mut buffer, mut len) = (vec![CANARY; 40], given);
    let status = ask(buffer.as_mut_ptr().cast(), &mut len);
    (status, len, buffer)
}

/// Memory of canaries that starts at an offset in its page, and lives for good.
struct Buffer {
    bytes: &'static [Cell<u8>],
}

impl Buffer {
    fn new(len: usize, offset: usize) -> Self {
        // Whole pages: a mapping reaches all of them.
        let memory: &'static [Cell<u8>] = Vec::leak(vec![Cell::new(CANARY); len + offset + 2 * PAGE_SIZE]);
        let start = memory.as_ptr().align_offset(PAGE_SIZE) + offset;
        Self { bytes: &memory[start..start + len] }
    }

    fn va(&self) -> u64 {
        self.bytes.as_ptr() as u64
    }
}

/// A chain of descriptors, which is gone when this is dropped.
struct Chain(Vec<MDL>);

impl Chain {
    /// Describes pieces of a buffer, by offset and length.
    fn of(buffer: &Buffer, pieces: &[(usize, usize)]) -> Self {
        let mut chain: Vec<_> = pieces.iter().map(|(at, len)| mdl(buffer.bytes[*at..].as_ptr().cast(), *len)).collect();
        for number in (1..chain.len()).rev() {
            chain[number - 1].Next = &raw mut chain[number];
        }
        Self(chain)
    }

    fn first(&mut self) -> *mut MDL {
        self.0.as_mut_ptr()
    }

    /// Overwrites the descriptors.
    fn spoil(&mut self) {
        for piece in &mut self.0 {
            (piece.Next, piece.StartVa, piece.ByteCount) = (null_mut(), null_mut(), u32::MAX);
        }
    }
}

fn new_mr(bench: &Bench, pd: *mut NDK_PD, is_fast: bool) -> *mut NDK_MR {
    let mut mr = null_mut();
    let slot = bench.slot();
    assert_eq!(ndk!(pd, NdkCreateMr(is_fast.into(), Some(on_created), slot.context(), &mut mr)), SUCCESS);
    mr
}

fn register(bench: &Bench, mr: *mut NDK_MR, chain: *mut MDL, len: usize, flags: u32) -> NTSTATUS {
    let slot = bench.slot();
    bench.done(ndk!(mr, NdkRegisterMr(chain, len, flags, Some(on_done), slot.context())), slot)
}

/// Builds a mapping in `place`, or asks for its size: status, size, offset of the first byte (99 if it was not written).
fn build_lam(bench: &Bench, side: usize, chain: *mut MDL, len: usize, place: &mut [u64], is_query: bool) -> (NTSTATUS, u32, u32) {
    let (mut size, mut fbo) = (if is_query { 0 } else { size_of_val(place) as u32 }, 99);
    let lam = if is_query { null_mut() } else { place.as_mut_ptr().cast() };
    // No completion: it is optional, and nothing pends.
    let status = ndk!(bench.sides[side].adapter, NdkBuildLAM(chain, len, None, null_mut(), lam, &mut size, &mut fbo));
    (status, size, fbo)
}

/// A mapping of a buffer.
struct Lam(Vec<u64>);

impl Lam {
    fn build(bench: &Bench, side: usize, buffer: &Buffer) -> Self {
        let len = buffer.bytes.len();
        let mut place = vec![0; 2 + len / PAGE_SIZE + 2];
        let mut chain = Chain::of(buffer, &[(0, len)]);
        assert_eq!(build_lam(bench, side, chain.first(), len, &mut place, false).0, SUCCESS);
        Self(place)
    }

    fn pages(&self) -> &[u64] {
        &self.0[2..2 + self.0[1] as u32 as usize]
    }

    fn release(mut self, bench: &Bench, side: usize) {
        ndk!(bench.sides[side].adapter, NdkReleaseLAM(self.0.as_mut_ptr().cast()));
    }
}
