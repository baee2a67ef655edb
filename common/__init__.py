"""What every room uses: commands, files, lazy exports, progress, the base error."""
