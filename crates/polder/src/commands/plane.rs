//! `polder plane`: a thin client of the `Plane` and `Layer` resources.

#[derive(clap::Subcommand)]
pub(crate) enum Plane {
    /// List planes.
    List,
}

impl Plane {
    pub(crate) fn run(self) -> anyhow::Result<()> {
        anyhow::bail!("not yet")
    }
}
