//! Sending: protected requests and responses, and what is traced and logged of them.

use super::context::Context;
use super::ending::Ending;
use super::ike_sa::IkeSaCommon;
use crate::event::{Direction, Event, KeyLog, MessageTrace};
use crate::failure::{DownReason, Shortage};
use crate::protected::ProtectedChannel;
use crate::suite::{IkeSaKeys, Role, SealError};
use crate::transport::ReceivedMessage;
use crate::wire::{ExchangeType, Header, Payload};

impl IkeSaCommon {
    /// Sends a protected request. The caller has made sure that no other request is outstanding.
    pub(crate) fn send_request(
        &mut self,
        ctx: &mut Context<'_>,
        channel: &mut ProtectedChannel,
        exchange: ExchangeType,
        payloads: &[Payload],
    ) -> Result<(), Ending> {
        let header = self.header(exchange, false, self.window.next_request_id());
        let datagram = channel
            .seal(&header, payloads)
            .map_err(|error| self.cannot_send(&error))?;
        self.trace(ctx, Direction::Sent, &header, payloads, datagram.len());
        self.transmit(ctx, &datagram);
        let timing = &self.connection.retransmission;
        self.window
            .request_sent(ctx.now, datagram, timing, ctx.random);
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
        let datagram = channel
            .seal(&header, payloads)
            .map_err(|error| self.cannot_send(&error))?;
        self.trace(ctx, Direction::Sent, &header, payloads, datagram.len());
        self.last_sent = ctx.now;
        ctx.transmit(request.local, request.remote, &datagram);
        self.window.response_sent(request.datagram, datagram);
        Ok(())
    }

    fn cannot_send(&self, error: &SealError) -> Ending {
        tracing::warn!(ike_sa = %self.id, connection = self.connection.name, %error, "cannot send a message");
        Ending::Silent(DownReason::Resources(Shortage::Message))
    }

    pub(crate) fn transmit(&mut self, ctx: &mut Context<'_>, message: &[u8]) {
        self.last_sent = ctx.now;
        ctx.transmit(self.local, self.remote, message);
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
            sk_ei: keys.export_encryption(Role::Initiator).clone(),
            sk_er: keys.export_encryption(Role::Responder).clone(),
            sk_ai: keys.export_integrity(Role::Initiator).clone(),
            sk_ar: keys.export_integrity(Role::Responder).clone(),
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
