//! The TUN devices: a queue of each for every worker, and their links.
//!
//! Devices of the `interfaces` section outlive the gateway. An administrator's routes lead into them, and the kernel
//! deletes routes with their device. Without the routes, their traffic would leave in the clear. Devices for marks go
//! with the gateway, as the common one: the gateway's own routes lead into them.

use crate::config::{GatewayConfig, InterfaceConfig};
use crate::daemon::host::shield;
use crate::io::tun::{Tun, TunError};
use crate::net::{Net, OwnLink, Result};
use crate::worker::{TunInterface, TunQueues};

#[derive(Debug)]
pub(in crate::daemon) struct Devices {
    pub common: TunDevice,
    /// The devices of the `interfaces` section, in the order of the configuration.
    pub interfaces: Vec<TunDevice>,
}

#[derive(Debug)]
pub(in crate::daemon) struct TunDevice {
    pub link: OwnLink,
    pub queues: Vec<Tun>,
}

pub(in crate::daemon) async fn open(
    config: &GatewayConfig,
    net: Option<&Net>,
) -> std::result::Result<Devices, TunError> {
    let common = OwnLink {
        interface: 0,
        index: 0,
        name: config.tun.clone(),
        mtu: config.mtu.into(),
        addresses: Vec::new(),
        kept: false,
    };
    let mut interfaces = Vec::with_capacity(config.interfaces.len());
    for interface in &config.interfaces {
        let link = own_link(interface);
        interfaces.push(TunDevice::open(link, config.workers, net).await?);
    }
    Ok(Devices {
        common: TunDevice::open(common, config.workers, net).await?,
        interfaces,
    })
}

/// Returns the link of an interface, whose index is not known yet.
pub(in crate::daemon) fn own_link(interface: &InterfaceConfig) -> OwnLink {
    OwnLink {
        interface: interface.if_id,
        index: 0,
        name: interface.name.clone(),
        mtu: interface.mtu.into(),
        addresses: interface.addresses.clone(),
        kept: !interface.marks.are_given(),
    }
}

impl Devices {
    /// Returns the interfaces, each with the index of its link.
    pub fn indices(&self) -> Vec<(u32, u32)> {
        let all = self.interfaces.iter().chain([&self.common]);
        let links = all.map(|device| &device.link);
        links.map(|link| (link.interface, link.index)).collect()
    }

    /// Returns, for each worker, the queues of the common device and the queues of every interface.
    pub fn for_workers(
        self,
        config: &GatewayConfig,
    ) -> impl Iterator<Item = (TunQueues, Vec<TunInterface>)> {
        let devices = self.interfaces.into_iter();
        let queues = devices.map(|one| TunQueues::for_workers(one.queues));
        let mut interfaces: Vec<_> = (config.interfaces.iter()).zip(queues).collect();
        TunQueues::for_workers(self.common.queues).map(move |tun| {
            let own = interfaces.iter_mut().filter_map(|(interface, queues)| {
                Some(TunInterface {
                    id: interface.if_id,
                    tun: queues.next()?,
                    mtu: interface.mtu,
                })
            });
            (tun, own.collect())
        })
    }
}

impl TunDevice {
    pub async fn open(
        mut link: OwnLink,
        workers: usize,
        net: Option<&Net>,
    ) -> std::result::Result<Self, TunError> {
        // A TUN device with several queues lets another process open a queue too. That process would take a share of
        // the packets.
        if let Some(net) = net
            && net.is_open(&link.name).await
        {
            return Err(TunError::Busy(link.name));
        }
        let queues = queues(&link, workers)?;
        // The kernel may have completed the name.
        if let Some(queue) = queues.first() {
            link.name = queue.name().to_owned();
        }
        Ok(Self { link, queues })
    }

    /// Sets up the link of the device.
    pub async fn set_up(&mut self, net: &Net, config: &GatewayConfig) -> Result<()> {
        let link = &mut self.link;
        // IN6_ADDR_GEN_MODE_NONE: without a link-local address the kernel has no routers and groups to ask for on a
        // device that no neighbour is at. A kernel without IPv6 has no such file.
        let mode = format!("/proc/sys/net/ipv6/conf/{}/addr_gen_mode", link.name);
        let _ = std::fs::write(mode, "1");
        // Only a mark leads to such a device, and the kernel looks for the way back to a source without the mark.
        if !link.kept && link.interface != 0 {
            let filter = format!("/proc/sys/net/ipv4/conf/{}/rp_filter", link.name);
            let _ = std::fs::write(filter, "0");
        }
        link.index = net.link_index(&link.name).await?;
        net.link_set_mtu(link.index, link.mtu).await?;
        // The GSO size stays at 64 KiB: a smaller one would make the kernel cut forwarded super-segments in software.
        net.link_set_up(link.index).await?;
        for (address, prefix_len) in &link.addresses {
            net.address_add(link.index, *address, *prefix_len).await?;
        }
        if link.kept
            && let Err(error) = self.keep(net, config).await
        {
            let name = &self.link.name;
            tracing::warn!("{name} goes with the gateway, and routes into it too: {error}");
        }
        Ok(())
    }

    async fn keep(
        &self,
        net: &Net,
        config: &GatewayConfig,
    ) -> std::result::Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let Some(queue) = self.queues.first() else {
            return Ok(());
        };
        // An earlier gateway has kept the device, or somebody else has made it and may want it after us.
        if queue.is_kept()? {
            return Ok(());
        }
        let alias = shield::name(config);
        net.link_set_alias(self.link.index, &alias).await?;
        Ok(queue.keep()?)
    }
}

/// Opens a queue for each worker.
fn queues(link: &OwnLink, workers: usize) -> std::result::Result<Vec<Tun>, TunError> {
    let open = |multi_queue| {
        let queues = (0..workers).map(|_| Tun::open(&link.name, multi_queue));
        queues.collect()
    };
    // A device that outlives this gateway must also suit the next one, which may have another number of workers.
    let kept = link.kept;
    match open(kept || workers > 1) {
        // Somebody has made the device with one queue.
        Err(TunError::Busy(_)) if kept && workers == 1 => open(false),
        opened => opened,
    }
}

/// Deletes what earlier gateways have kept and this configuration does not name.
pub(in crate::daemon) async fn settle(net: &Net, config: &GatewayConfig) {
    let named = config.interfaces.iter().map(|interface| &*interface.name);
    let named: Vec<_> = named.collect();
    match net.links_delete(&shield::name(config), &named).await {
        Ok(deleted) if deleted.is_empty() => {}
        Ok(deleted) => {
            let deleted = deleted.join(", ");
            tracing::info!("deleted, as the configuration does not name them now: {deleted}");
        }
        Err(error) => tracing::error!("interfaces of an earlier gateway are left: {error}"),
    }
}

/// Deletes all that gateways with this table have kept.
pub(in crate::daemon) async fn clear(net: &Net, config: &GatewayConfig) -> Result<()> {
    net.links_delete(&shield::name(config), &[]).await.map(drop)
}
