"""The kinds of links: UDP, Meshtastic radios, SMS, QR codes, emulated ones."""
