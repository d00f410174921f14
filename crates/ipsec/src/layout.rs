//! Where things lie in the packets of one SA: computed when it is installed, so that a packet costs no look at
//! algorithms and no division.

use esplanade_crypto::{IvKind, Protocol, Transform};

use crate::options::{Mode, TfcPadding};
use crate::wire::esp;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub protocol: Protocol,
    pub mode: Mode,
    pub iv_kind: IvKind,
    pub tfc: TfcPadding,
    pub class: Option<u8>,
    iv_len: u8,
    icv_len: u8,
    align: u8,
}

impl Layout {
    pub fn new(transform: Transform, mode: Mode, tfc: TfcPadding, class: Option<u8>) -> Self {
        // What goes behind a payload that does not say its own length cannot be told from it (RFC 4303 §2.7).
        let padded = mode == Mode::Tunnel && transform.protocol() == Protocol::Esp;
        Self {
            protocol: transform.protocol(),
            mode,
            iv_kind: transform.iv_kind(),
            tfc: if padded { tfc } else { TfcPadding::None },
            class: class.map(|class| class.min(7)),
            iv_len: transform.iv_len() as u8,
            icv_len: transform.icv_len() as u8,
            align: transform.block_align() as u8,
        }
    }

    /// The same, where the sequence number is the IV and nothing is padded to a length, so that code for it asks nothing.
    #[inline(always)]
    pub fn usual(self) -> Self {
        Self {
            iv_kind: IvKind::Sequence,
            iv_len: 8,
            tfc: TfcPadding::None,
            ..self
        }
    }

    pub fn iv_len(&self) -> usize {
        self.iv_len.into()
    }

    pub fn icv_len(&self) -> usize {
        self.icv_len.into()
    }

    /// ESP header and IV.
    pub fn esp_header_len(&self) -> usize {
        esp::HEADER_LEN + self.iv_len()
    }

    /// Payload, padding and trailer: a multiple of the alignment, which is a power of two.
    pub fn body_len(&self, payload_len: usize) -> usize {
        let mask = usize::from(self.align) - 1;
        (payload_len + esp::TRAILER_LEN + mask) & !mask
    }

    /// At most this follows the payload: padding, trailer and ICV.
    pub fn behind_len_max(&self) -> usize {
        usize::from(self.align) - 1 + esp::TRAILER_LEN + self.icv_len()
    }

    /// An ESP packet, SPI to ICV.
    pub fn sealed_len(&self, payload_len: usize) -> usize {
        self.esp_header_len() + self.body_len(payload_len) + self.icv_len()
    }

    /// Whether an ESP packet of this length can be one of this SA.
    pub fn fits(&self, sealed_len: usize) -> bool {
        let body = sealed_len.wrapping_sub(self.esp_header_len() + self.icv_len());
        let mask = usize::from(self.align) - 1;
        sealed_len >= self.sealed_len(0) && body & mask == 0
    }

    /// Priority of a packet with this TOS.
    pub fn class(&self, tos: u8) -> u8 {
        self.class.unwrap_or(tos >> 5)
    }

    /// Plain tunnel mode with ESP, where nothing of the packet has to be looked at to lay it out.
    pub fn is_esp_tunnel(&self) -> bool {
        self.protocol == Protocol::Esp && self.mode == Mode::Tunnel
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 4303 R12
    #[test]
    fn lengths_are_the_transforms() {
        for transform in Transform::all().filter(|t| t.protocol() == Protocol::Esp) {
            let layout = Layout::new(transform, Mode::Tunnel, TfcPadding::None, None);
            for len in 0..200 {
                assert_eq!(layout.sealed_len(len), transform.sealed_len(len));
                let overhead = esp::HEADER_LEN + transform.iv_len() + transform.icv_len();
                let valid = len >= transform.sealed_len_min()
                    && (len - overhead).is_multiple_of(transform.block_align());
                assert_eq!(layout.fits(len), valid, "{transform} {len}");
            }
        }
    }

    #[test]
    fn only_tunnels_of_esp_are_padded_for_traffic_flow_confidentiality() {
        let esp = Transform::ESP[0];
        let to = TfcPadding::To(1400);
        let layout = |transform, mode| Layout::new(transform, mode, to, None).tfc;
        assert_eq!(layout(esp, Mode::Tunnel), to);
        assert_eq!(layout(esp, Mode::Transport), TfcPadding::None);
        assert_eq!(layout(Transform::AH[0], Mode::Tunnel), TfcPadding::None);
    }
}
