//! Peers that are silent: in IKE while an SA is being established, or in ESP while they answer IKE.

use std::net::SocketAddr;
use std::time::Instant;

use crate::nat::UdpTrial;

/// One-way traffic of a child SA.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OneWay {
    /// The time of the first packet without an answer.
    pub since: Instant,
    /// The peer has sent on this SA before, or on one that this SA has replaced.
    pub answered_before: bool,
    /// The packets may need no answer: the selectors take nothing but UDP or multicast, or some packets are dummies.
    pub by_nature: bool,
    /// Another child SA of the same IKE SA has brought packets meanwhile, so that ESP passes.
    pub esp_passes: bool,
    /// The trial of UDP encapsulation.
    pub udp_trial: UdpTrial,
}

impl OneWay {
    /// Returns the likely causes, the likeliest first. `outer` is what carries the SA's packets: `UDP port 4500`.
    pub fn causes(&self, outer: &str) -> Vec<String> {
        let mut causes = Vec::new();
        if self.by_nature {
            let text =
                "the traffic may need no answer: it is UDP or multicast alone, or dummy packets";
            causes.push(text.to_owned());
        }
        let filter = format!("a filter at one of the ends or between them drops {outer}");
        let filter = Some(filter).filter(|_| !self.esp_passes);
        let behind = "behind the peer nothing comes back: it does not forward, its firewall drops forwarded packets, or \
                      the hosts there have no route to this side";
        let behind = Some(behind.to_owned());
        // Few filters drop both forms of ESP and let IKE pass.
        let ranked = match self.udp_trial {
            UdpTrial::Failed => [behind, filter],
            _ => [filter, behind],
        };
        causes.extend(ranked.into_iter().flatten());
        causes.push("the peer drops the packets: its log and its counters say why".to_owned());
        causes
    }
}

/// An attempt to establish an IKE SA. Its last request waits for an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    pub connection: String,
    pub since: Instant,
    /// The address that the requests go to.
    pub remote: SocketAddr,
    /// The number of times that the request was sent.
    pub unanswered: u32,
    pub silence: Silence,
}

/// The way in which a peer does not answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Silence {
    /// Nothing has come that could be an answer.
    Complete,
    /// The peer has asked for another IKE_SA_INIT, and has not answered that.
    AfterRestart,
    /// IKE_SA_INIT is answered, and IKE_AUTH is not.
    AfterInit { in_fragments: bool },
    /// Something has come that cannot be used. The text can contain what a stranger has sent.
    Unusable(String),
}

impl Attempt {
    /// Says what has come of the peer.
    pub fn seen(&self) -> String {
        let peer = self.remote.ip();
        match &self.silence {
            Silence::Complete => format!("nothing has come from {peer}"),
            Silence::AfterRestart => {
                format!("{peer} has asked for another IKE_SA_INIT, and does not answer it")
            }
            Silence::AfterInit { .. } => {
                format!("{peer} has answered IKE_SA_INIT, and does not answer IKE_AUTH")
            }
            Silence::Unusable(why) => format!("an answer from {peer} cannot be used: {why}"),
        }
    }

    /// Says what to look for.
    pub fn remedy(&self) -> String {
        let port = self.remote.port();
        match &self.silence {
            Silence::Complete => format!(
                "does the peer run at this address, and do the filters of both ends and between them let UDP port {port} \
                 pass?"
            ),
            Silence::AfterRestart => {
                "does a filter limit UDP, or is the peer overloaded?".to_owned()
            }
            Silence::AfterInit { in_fragments } => {
                let ports = match port {
                    500 => "large UDP datagrams, or fragments of them".to_owned(),
                    port => format!("UDP port {port}"),
                };
                let fragments = match in_fragments {
                    true => ", or all but the first of several datagrams (RFC 7383)",
                    false => "",
                };
                format!(
                    "a filter may drop {ports}{fragments}; the peer's log says whether it has come"
                )
            }
            Silence::Unusable(_) => {
                "the answer may be forged; if not, the log of the peer says more".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_ranks_the_causes() {
        let one_way = OneWay {
            since: Instant::now(),
            answered_before: false,
            by_nature: false,
            esp_passes: false,
            udp_trial: UdpTrial::Untried,
        };
        let begin = |one_way: OneWay| -> Vec<String> {
            let causes = one_way.causes("protocol 50").into_iter();
            let words = causes.map(|cause| cause.split(' ').take(2).collect::<Vec<_>>().join(" "));
            words.collect()
        };
        assert!(one_way.causes("protocol 50")[0].ends_with("drops protocol 50"));
        assert_eq!(begin(one_way), ["a filter", "behind the", "the peer"]);
        let in_vain = OneWay {
            udp_trial: UdpTrial::Failed,
            ..one_way
        };
        assert_eq!(begin(in_vain), ["behind the", "a filter", "the peer"]);
        let passes = OneWay {
            esp_passes: true,
            by_nature: true,
            ..one_way
        };
        assert_eq!(begin(passes), ["the traffic", "behind the", "the peer"]);
    }
}
