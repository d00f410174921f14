//! Where the fields lie in the packets of one SA. The layout is computed when the SA is installed, so that the packet
//! path neither looks at algorithms nor divides.

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
        // A payload that does not carry its own length cannot be told from TFC padding behind it (RFC 4303 §2.7).
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

    /// Returns the layout of a usual SA: the sequence number is the IV and no packet is padded to a length. With
    /// these constants the compiler removes the branches on both.
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

    /// The length of the ESP header and the IV, in bytes.
    pub fn esp_header_len(&self) -> usize {
        esp::HEADER_LEN + self.iv_len()
    }

    /// The length of payload, padding and trailer in bytes: a multiple of the alignment, which is a power of two.
    pub fn body_len(&self, payload_len: usize) -> usize {
        let mask = usize::from(self.align) - 1;
        (payload_len + esp::TRAILER_LEN + mask) & !mask
    }

    /// The most bytes that follow a payload: padding, trailer and ICV.
    pub fn behind_len_max(&self) -> usize {
        usize::from(self.align) - 1 + esp::TRAILER_LEN + self.icv_len()
    }

    /// The length of an ESP packet in bytes, from the SPI to the ICV.
    pub fn sealed_len(&self, payload_len: usize) -> usize {
        self.esp_header_len() + self.body_len(payload_len) + self.icv_len()
    }

    /// Returns true if an ESP packet of this SA can have this length.
    pub fn fits(&self, sealed_len: usize) -> bool {
        let body = sealed_len.wrapping_sub(self.esp_header_len() + self.icv_len());
        let mask = usize::from(self.align) - 1;
        sealed_len >= self.sealed_len(0) && body & mask == 0
    }

    /// The priority class of a packet with this TOS: the SA's fixed class, or else the precedence bits of the TOS.
    pub fn class(&self, tos: u8) -> u8 {
        self.class.unwrap_or(tos >> 5)
    }

    /// Returns true for ESP in tunnel mode, where the layout does not depend on the packet's contents.
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
