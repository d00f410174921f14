//! Sending: protected requests and responses, and what is traced and logged of them.

use std::net::{IpAddr, SocketAddr};

use super::context::Context;
use super::ending::Ending;
use super::ike_sa::IkeSaCommon;
use crate::config::{Fragmentation, Retransmission};
use crate::event::{Direction, Event, KeyLog, MessageTrace};
use crate::failure::{DownReason, Shortage};
use crate::protected::{OutgoingMessage, ProtectedChannel};
use crate::suite::{IkeSaKeys, Role, SealError};
use crate::transport::{ReceivedMessage, message_len};
use crate::wire::{ExchangeType, Header, Payload};

/// The datagrams that RFC 7383 §2.5.1 recommends where nothing is known of the path.
const IPV4_DATAGRAM_LEN: u16 = 576;
const IPV6_DATAGRAM_LEN: u16 = 1280;

fn recommended_len(remote: IpAddr) -> u16 {
    match remote {
        IpAddr::V4(_) => IPV4_DATAGRAM_LEN,
        IpAddr::V6(_) => IPV6_DATAGRAM_LEN,
    }
}

/// Returns the length of the smallest fragments that are worth a try.
fn smallest_fragment(ctx: &Context<'_>, local: SocketAddr, remote: SocketAddr) -> usize {
    let size = recommended_len(remote.ip());
    message_len(size, remote.ip(), ctx.is_nat_t(local))
}

/// Sends a message again. If its fragments have brought no answer, the path may be too narrow for them: then they are
/// cut smaller (RFC 7383 §2.5.2). Returns the length of the new fragments.
pub(crate) fn send_again(
    ctx: &mut Context<'_>,
    channel: Option<&mut ProtectedChannel>,
    message: &mut OutgoingMessage,
    (local, remote): (SocketAddr, SocketAddr),
    dscp: u8,
) -> Option<usize> {
    let len = smallest_fragment(ctx, local, remote);
    let cut = channel.is_some_and(|channel| channel.cut_smaller(message, len));
    ctx.transmit_message(local, remote, dscp, message);
    cut.then_some(len)
}

impl IkeSaCommon {
    /// Sends a protected request. The caller has made sure that no other request is outstanding.
    pub(crate) fn send_request(
        &mut self,
        ctx: &mut Context<'_>,
        channel: &mut ProtectedChannel,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) -> Result<(), Ending> {
        let timing = self.connection.retransmission;
        self.send_request_with(ctx, channel, exchange, payloads, &timing)
    }

    /// Sends the question whether the peer is alive.
    pub(crate) fn send_liveness(
        &mut self,
        ctx: &mut Context<'_>,
        channel: &mut ProtectedChannel,
        timing: &Retransmission,
    ) -> Result<(), Ending> {
        self.send_request_with(ctx, channel, ExchangeType::INFORMATIONAL, &[], timing)?;
        self.window.ask_for_life();
        Ok(())
    }

    fn send_request_with(
        &mut self,
        ctx: &mut Context<'_>,
        channel: &mut ProtectedChannel,
        exchange: ExchangeType,
        payloads: &[Payload],
        timing: &Retransmission,
    ) -> Result<(), Ending> {
        let header = self.header(exchange, false, self.window.next_request_id());
        let longest = self.longest_datagram(ctx, self.local, self.remote);
        let mut message = channel
            .seal(&header, payloads, longest)
            .map_err(|error| self.cannot_send(&error))?;
        self.trace(ctx, Direction::Sent, &header, payloads, message.len());
        self.transmit(ctx, &mut message);
        self.window
            .request_sent(ctx.now, message, timing, ctx.random);
        Ok(())
    }

    /// Sends the response to a request, to where the request came from (RFC 7296 §2.11).
    pub(crate) fn send_response(
        &mut self,
        ctx: &mut Context<'_>,
        channel: &mut ProtectedChannel,
        request: &ReceivedMessage<'_>,
        payloads: &[Payload],
    ) -> Result<(), Ending> {
        let header = self.header(request.header.exchange, true, request.header.message_id);
        let longest = self.longest_datagram(ctx, request.local, request.remote);
        let mut message = channel
            .seal(&header, payloads, longest)
            .map_err(|error| self.cannot_send(&error))?;
        self.trace(ctx, Direction::Sent, &header, payloads, message.len());
        self.last_sent = ctx.now;
        let dscp = self.connection.dscp;
        ctx.transmit_message(request.local, request.remote, dscp, &mut message);
        self.window.response_sent(request.datagram, message);
        Ok(())
    }

    /// Returns the length that a message may have without being cut into fragments. `None` means that it is never cut.
    fn longest_datagram(
        &self,
        ctx: &Context<'_>,
        local: SocketAddr,
        remote: SocketAddr,
    ) -> Option<usize> {
        if !self.fragmentation || self.connection.fragmentation != Fragmentation::Yes {
            return None;
        }
        let size = match ctx.config.fragment_size {
            0 => recommended_len(remote.ip()),
            size => size,
        };
        let configured = message_len(size, remote.ip(), ctx.is_nat_t(local));
        Some(
            self.narrow_path
                .map_or(configured, |len| len.min(configured)),
        )
    }

    /// The peer has sent fragments of a request, of which the longest has this length. Responses follow it, because it
    /// may know the path better (RFC 7383 §2.5.1).
    pub(crate) fn follow_fragments(
        &mut self,
        ctx: &Context<'_>,
        received: &ReceivedMessage<'_>,
        longest: usize,
    ) {
        let floor = smallest_fragment(ctx, received.local, received.remote);
        let len = longest.max(floor);
        self.narrow_path = Some(self.narrow_path.map_or(len, |before| before.min(len)));
    }

    pub(super) fn cannot_send(&self, error: &SealError) -> Ending {
        tracing::warn!(ike_sa = %self.id, connection = self.connection.name, %error, "cannot send a message");
        Ending::Silent(DownReason::Resources(Shortage::Message))
    }

    pub(crate) fn transmit(&mut self, ctx: &mut Context<'_>, message: &mut OutgoingMessage) {
        self.last_sent = ctx.now;
        ctx.transmit_message(self.local, self.remote, self.connection.dscp, message);
    }

    pub(crate) fn trace(
        &self,
        ctx: &mut Context<'_>,
        direction: Direction,
        header: &Header,
        payloads: &[Payload],
        len: usize,
    ) {
        if !ctx.config.trace_messages {
            return;
        }
        let names: Vec<String> = payloads.iter().map(describe).collect();
        ctx.events.push_back(Event::Message(MessageTrace {
            ike_sa: self.id,
            connection: self.connection.name.clone(),
            direction,
            local: self.local,
            remote: self.remote,
            exchange: header.exchange.name().unwrap_or("unknown"),
            response: header.response,
            message_id: header.message_id,
            payloads: names.join(" "),
            len,
        }));
    }

    /// Exports the keys, where the administrator asks for that.
    pub(crate) fn log_keys(&self, ctx: &mut Context<'_>, keys: &IkeSaKeys) {
        if !ctx.config.key_log {
            return;
        }
        ctx.events.push_back(Event::KeyLog(KeyLog {
            ike_sa: self.id,
            spi_i: self.spi_i,
            spi_r: self.spi_r,
            sk_ei: keys.export_encryption(Role::Initiator).into(),
            sk_er: keys.export_encryption(Role::Responder).into(),
            sk_ai: keys.export_integrity(Role::Initiator).into(),
            sk_ar: keys.export_integrity(Role::Responder).into(),
            suite: keys.suite(),
        }));
    }
}

fn describe(payload: &Payload) -> String {
    match payload {
        Payload::Notify(notify) => format!("N({})", notify.kind),
        other => other.kind().to_string(),
    }
}
