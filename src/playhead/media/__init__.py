"""Media and speech: decoding, voice activity, speech engines, captions, the media library.

Nothing here is loaded until it is used; the heavy parts come with `pip install 'playhead[speech]'`.
"""
