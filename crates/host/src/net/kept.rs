//! Finds and deletes interfaces that outlived their gateway. Their alias tells them from interfaces
//! of others.

use futures_util::TryStreamExt;
use rtnetlink::LinkUnspec;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};

use super::{Net, NetError, Result, name};

impl Net {
    /// Tells whether a process has the TUN interface `name` open. The kernel shows a carrier only
    /// then.
    pub async fn is_open(&self, name: &str) -> bool {
        let link = self.link(name).await;
        link.is_ok_and(|link| link.header.flags.contains(LinkFlags::LowerUp))
    }

    pub async fn link_set_alias(&self, index: u32, alias: &str) -> Result<()> {
        let alias = LinkAttribute::IfAlias(alias.to_owned());
        let message = LinkUnspec::new_with_index(index).append_extra_attribute(alias);
        self.link_set("set the alias of", message).await
    }

    /// Deletes the interfaces with this alias, except those named in `but`. Returns the names of
    /// the deleted interfaces.
    pub async fn links_delete(&self, alias: &str, but: &[&str]) -> Result<Vec<String>> {
        let links: Vec<LinkMessage> = Box::pin(self.handle.link().get().execute())
            .try_collect()
            .await
            .map_err(|e| NetError::new("cannot list the interfaces", e))?;
        let alias = LinkAttribute::IfAlias(alias.to_owned());
        let mut deleted = Vec::new();
        for link in links.iter().filter(|link| link.attributes.contains(&alias)) {
            let name = name(link).unwrap_or_default();
            if but.contains(&name) {
                continue;
            }
            let result = self.handle.link().del(link.header.index).execute().await;
            let what = || format!("cannot delete the interface {name}");
            result.map_err(|e| NetError::new(what(), e))?;
            deleted.push(name.to_owned());
        }
        Ok(deleted)
    }
}
