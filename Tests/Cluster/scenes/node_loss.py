def play(world, transcript, draw):
    pass
